"""What is minimised: a loss on the out-of-bag vote plus a penalty on the weights."""
