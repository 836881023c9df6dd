"""Where a tensor's bytes lie. Works on any torch tensor without importing torch."""


def extent(tensor):
    """Bytes from a tensor's first element to the end of its last."""
    count = tensor.numel()
    if not count:
        return 0
    if not tensor.is_contiguous():
        count = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    return count * tensor.element_size()


def tensor_range(tensor):
    """Address and size of a tensor's bytes."""
    return tensor.data_ptr(), extent(tensor)
