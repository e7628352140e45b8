"""GPT-2 training in Python, every forward and backward pass written by hand."""
