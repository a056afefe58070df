"""What experts know: skills as folders of text, each with a condition that says when it is worth trying."""
