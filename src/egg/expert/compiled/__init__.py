"""What Inductor generated for a program, as a kernel file: read from its text, never run."""
