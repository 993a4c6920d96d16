# Numbers are not followed: what a weight is filled with does not matter.
def guard_torch_init_functions():
    return lambda function: function


def _fill(tensor, *args, **options):
    return tensor


uniform_ = normal_ = constant_ = ones_ = zeros_ = eye_ = copy_ = trunc_normal_ = _fill
xavier_uniform_ = xavier_normal_ = kaiming_uniform_ = kaiming_normal_ = orthogonal_ = _fill
