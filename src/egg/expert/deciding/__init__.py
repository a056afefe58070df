"""What a structure should cost, which others are worth a try, and what is changed after a refusal."""
