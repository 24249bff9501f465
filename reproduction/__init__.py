"""The AdaComp paper, reproduced: what its figures and its table need, carried out, told as pages."""
