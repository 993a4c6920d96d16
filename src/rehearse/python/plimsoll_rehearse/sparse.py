"""Sparse tensors. Their kernels flatten, sort and add what they hold without an operator that could be followed: where indices and values are
known, the processor's own operators say what comes out; where they are not, nothing is known of it."""

import warnings

_libraries = []  # a registration lasts as long as its library


def patch(torch, values):
    if not hasattr(torch.library, "get_kernel"):
        return
    library = torch.library.Library("aten", "IMPL")
    _libraries.append(library)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a kernel is overridden is what is meant
        for name, follow in (("_to_dense", dense), ("_coalesce", coalesced)):
            operator = getattr(torch.ops.aten, name).default
            library.impl(name, followed(torch, values, operator, follow), "SparseCUDA", with_keyset=True)


def followed(torch, values, operator, follow):
    kernel = torch.library.get_kernel(operator, "SparseCUDA")

    def called(keys, sparse, *arguments, **options):
        given = (*arguments, *(options.get(each.name, each.default_value) for each in operator._schema.arguments[1 + len(arguments) :]))
        known = min(values.knowledge(sparse._indices()), values.knowledge(sparse._values()))
        return follow(torch, values, kernel.call_boxed(keys, sparse, *given), sparse, known)

    return called


def on_host(torch, sparse):
    from .values import host_view

    return torch.sparse_coo_tensor(host_view(sparse._indices()), host_view(sparse._values()), sparse.shape, device="cpu")


def dense(torch, values, result, sparse, known):
    if known and values.is_small(result):
        values.set(result, on_host(torch, sparse).to_dense(), known)
    else:
        values.note(result, 0)
    return result


def coalesced(torch, values, result, sparse, known):
    if not known:
        return result
    summed = on_host(torch, sparse).coalesce()
    indices = torch.empty(summed.indices().shape, dtype=torch.int64, device=result.device)
    numbers = torch.empty(summed.values().shape, dtype=summed.dtype, device=result.device)
    values.set(indices, summed.indices(), known)
    values.set(numbers, summed.values(), known)
    return torch.ops.aten._sparse_coo_tensor_unsafe(indices, numbers, sparse.shape, is_coalesced=True)
