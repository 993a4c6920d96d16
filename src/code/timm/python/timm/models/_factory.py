from plimsoll import timm_function
from timm.models._registry import configure_by, split_model_name_tag


def create_model(model_name, pretrained=False, pretrained_cfg=None, pretrained_cfg_overlay=None, **kwargs):
    name, tag = split_model_name_tag(model_name)
    function, default_cfgs = timm_function(name)
    configure_by(default_cfgs)
    told = {key: value for key, value in kwargs.items() if value is not None}
    model = function(pretrained_cfg=pretrained_cfg or tag or None, pretrained_cfg_overlay=pretrained_cfg_overlay, **told)
    model._model_args = told
    return model


# Channels, rows and columns: of the pretrained configuration, or as the model was asked for.
def image_size(model):
    channels, *places = model.pretrained_cfg["input_size"]
    asked = model._model_args.get("img_size", places)
    return (model._model_args.get("in_chans", channels), *(asked if isinstance(asked, (tuple, list)) else (asked, asked)))


def loss_of_images(self, images, labels):
    import torch.nn.functional as F

    return F.cross_entropy(type(self).forward(self, images), labels)
