"""What ``import testbed`` gives to programs and notebooks: experiments, runs and their results."""
