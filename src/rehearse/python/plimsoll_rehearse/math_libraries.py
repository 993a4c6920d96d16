"""Operators whose work the stand-in cannot see by itself. cuSOLVER, cuFFT and cuSPARSE it has not: PyTorch's operators over them give results
of the right shapes, and compute nothing. Grouped products of experts have their groups on the device: they tell their shape."""

import warnings

from . import device, journal

LINEAR_ALGEBRA = (
    "_cholesky_solve_helper",
    "_linalg_det",
    "_linalg_eigh",
    "_linalg_slogdet",
    "_linalg_solve_ex",
    "_linalg_svd",
    "cholesky_inverse",
    "geqrf",
    "linalg_cholesky_ex",
    "linalg_eig",
    "linalg_householder_product",
    "linalg_inv_ex",
    "linalg_ldl_factor_ex",
    "linalg_ldl_solve",
    "linalg_lu",
    "linalg_lu_factor_ex",
    "linalg_lu_solve",
    "linalg_qr",
    "ormqr",
)
FOURIER = ("_fft_c2c", "_fft_c2r", "_fft_r2c")

_libraries = []  # a registration lasts as long as its library


def patch(torch):
    library = torch.library.Library("aten", "IMPL")
    _libraries.append(library)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a kernel is overridden is what is meant
        for names, maker in ((LINEAR_ALGEBRA, "cuSOLVER"), (FOURIER, "cuFFT")):
            for name in names:
                operator = getattr(getattr(torch.ops.aten, name, None), "default", None)
                if operator is not None:
                    library.impl(name, results_of(torch, operator, maker), "CUDA")
        library.impl("addmm", sparse_product(torch), "SparseCUDA")
        for name in ("_grouped_mm", "_scaled_grouped_mm"):
            operator = getattr(getattr(torch.ops.aten, name, None), "default", None)
            if operator is not None and hasattr(torch.library, "get_kernel"):
                library.impl(name, telling_shapes(operator, torch.library.get_kernel(operator, "CUDA")), "CUDA", with_keyset=True)


def telling_shapes(operator, kernel):
    """The operator itself, which says before it runs what each of its groups multiplies when they are even."""

    def announced(keys, left, right, *arguments, **options):
        names = [each.name for each in operator._schema.arguments][2:]
        defaults = [each.default_value for each in operator._schema.arguments][2:]
        given = (*arguments, *(options.get(name, default) for name, default in list(zip(names, defaults))[len(arguments) :]))
        offsets = dict(zip(names, given)).get("offs")
        device.mark(device.TEXT, 0, "grouped product " + " ".join(map(str, even_groups(left, right, offsets))))
        return kernel.call_boxed(keys, left, right, *given)

    return announced


def even_groups(left, right, offsets):
    """m, n, k of BLAS (the row-major result transposed), groups, bytes of an element, whether either operand is transposed."""
    groups = right.shape[0] if right.dim() == 3 else left.shape[0] if left.dim() == 3 else offsets.shape[0] if offsets is not None else 1
    rows, columns, inner = left.shape[-2], right.shape[-1], left.shape[-1]
    if left.dim() == 2 and right.dim() == 3:
        rows = -(-rows // groups)
    elif left.dim() == 3 and right.dim() == 2:
        columns = -(-columns // groups)
    elif left.dim() == 2 and right.dim() == 2:
        inner = -(-inner // groups)
    transposed = [int(each.stride(-2) == 1 and each.shape[-1] > 1) for each in (right, left)]
    return columns, rows, inner, groups, left.element_size(), *transposed


def sparse_product(torch):
    """A sparse matrix times a dense one; the shape rules of tensors without memory do not know sparse ones."""

    def kernel(added, left, right, *, beta=1, alpha=1):
        journal.replaced("addmm of cuSPARSE: its result has its shape, no values, no workspace and no price")
        return torch.empty((left.shape[0], right.shape[1]), dtype=right.dtype, device=right.device)

    return kernel


def results_of(torch, operator, maker):
    """Empty results of the shapes that the operator's own rules give to tensors without memory; what says whether it failed says no."""
    name = operator.name().split("::")[-1]
    returns = [each.name for each in operator._schema.returns]

    def kernel(*arguments, **options):
        journal.replaced(f"{name} of {maker}: its results have their shapes, no values, no workspace and no price")
        device = next(each.device for each in arguments if isinstance(each, torch.Tensor))
        without_memory = [each.to("meta") if isinstance(each, torch.Tensor) else each for each in arguments]
        results = operator(*without_memory, **options)
        def allocate(each, name=""):
            empty = torch.empty_strided(each.shape, each.stride(), dtype=each.dtype, device=device)
            return empty.zero_() if name == "info" else empty

        return allocate(results) if isinstance(results, torch.Tensor) else tuple(map(allocate, results, returns))

    return kernel
