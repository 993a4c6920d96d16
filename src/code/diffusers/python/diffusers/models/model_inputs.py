# What diffusers' training scripts give the forward of a class: arguments as --input names them. S is the image's tokens, T the prompt's.


def _flux(config):
    inputs = [
        f"hidden_states:float[B,S,{config.in_channels}]",
        f"encoder_hidden_states:float[B,T,{config.joint_attention_dim}]",
        f"pooled_projections:float[B,{config.pooled_projection_dim}]",
        "timestep:float[B]",
    ]
    guidance = ["guidance:float32[B]"] if config.guidance_embeds else []
    return inputs + guidance + ["img_ids:float[S,3]", "txt_ids:float[T,3]"]


def _sd3(config):
    side = f"{config.patch_size}√S"
    return [
        f"hidden_states:float[B,{config.in_channels},{side},{side}]",
        f"encoder_hidden_states:float[B,T,{config.joint_attention_dim}]",
        f"pooled_projections:float[B,{config.pooled_projection_dim}]",
        "timestep:float[B]",
    ]


def _wan(config):
    # 81 frames of 480 by 832, which its autoencoder makes 21 of 60 by 104
    return [f"hidden_states:float[B,{config.in_channels},21,60,104]", "timestep:int64[B]", f"encoder_hidden_states:float[B,T,{config.text_dim}]"]


def _qwen_image(config):
    return [
        f"hidden_states:float[B,S,{config.in_channels}]",
        f"encoder_hidden_states:float[B,T,{config.joint_attention_dim}]",
        "encoder_hidden_states_mask:int64[B,T]=1",
        "timestep:float[B]",
    ]


RULES = {
    "FluxTransformer2DModel": _flux,
    "QwenImageTransformer2DModel": _qwen_image,
    "SD3Transformer2DModel": _sd3,
    "WanTransformer3DModel": _wan,
}


def inputs(class_name, config):
    rule = RULES.get(class_name)
    return None if rule is None else rule(config)


def values(class_name, batch, tokens):
    """What forward takes beside tensors: Qwen-Image the grids of its images, each a square one here."""
    if class_name != "QwenImageTransformer2DModel":
        return {}
    side = round(tokens**0.5)
    if side * side != tokens:
        raise ValueError("an image of " + str(tokens) + " patches is no square")
    return {"img_shapes": [[(1, side, side)]] * batch}
