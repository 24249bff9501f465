"""The parameter server, under the wall clock and under the virtual one."""
