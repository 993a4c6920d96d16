# Numbers into tensors, whose shapes stay.
def _as_it_is(tensor, *args, **kwargs):
    return tensor


trunc_normal_ = trunc_normal_tf_ = variance_scaling_ = lecun_normal_ = _as_it_is


def init_weight_vit(module, name="", init_bias=0.02, head_bias=0.0, classifier_name="head", **options):
    pass


def init_weight_jax(module, name="", head_bias=0.0, classifier_name="head", **options):
    pass


def is_meta_device(device):
    return False
