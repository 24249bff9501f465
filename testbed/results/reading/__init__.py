"""Reading run directories: which runs are meant, and what their files say."""
