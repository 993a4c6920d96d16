# What a type's processor gives its forward where that is more than ids, an image or a sound: arguments as --input names them, labels second.
# Numbers are the processors' own defaults.


def _dia(config):
    channels = config.decoder_config.num_channels
    return ["input_ids:int64[B,S]", f"labels:int64[{channels}B,T]", f"decoder_input_ids:int64[B,T,{channels}]"]


def _flattened_patches(config):
    vision = config.vision_config  # of each patch where it lies, and its pixels
    patches = f"flattened_patches:float[B,{vision.seq_len},{vision.patch_embed_hidden_size + 2}]"
    return [patches, "labels:int64[B,T]", f"attention_mask:float32[B,{vision.seq_len}]=1"]


def _frames(config):
    return [f"input_features:float[B,S,{4 * config.encoder_config.num_mel_bins}]", "labels:int64[B,T]", "attention_mask:int64[B,S]=1"]


def _idefics(config):
    size = config.vision_config.image_size
    return ["input_ids:int64[B,S]", "labels:int64[B,S]", f"pixel_values:float[B,1,3,{size},{size}]", "image_attention_mask:int64[B,S,1]=1"]


def _patches(config):
    vision = config.vision_config  # Siglip2ImageProcessor: at most 256 of an image
    width = vision.num_channels * vision.patch_size**2
    return [f"pixel_values:float[B,256,{width}]", "labels:int64[B]", "pixel_attention_mask:int32[B,256]=1", "spatial_shapes:int64[B,2]=16"]


def _pictured(config):
    size = config.vision_config.image_size
    return ["input_ids:int64[B,S]", "labels:int64[B,S]", f"pixel_values:float[B,3,{size},{size}]"]


def _streamed_sound(config):
    frames = 2 * config.downsample_factor  # of a token: the convolutions halve their count, the projector takes so many at once
    return ["input_ids:int64[B,S]", "labels:int64[B,S]", f"input_features:float[B,{config.audio_config.num_mel_bins},{frames}S]"]


RULES = {
    "dia": _dia,
    "git": _pictured,
    "granite_speech5_ctc": _frames,
    "idefics": _idefics,
    "kyutai_speech_to_text": lambda config: [f"input_ids:int64[B,S,{config.num_codebooks + 1}]", "labels:int64[B,S]"],
    "molmo2": lambda config: ["input_ids:int64[B,S]", "labels:int64[B,S]", "mm_token_type_ids:int64[B,S]=0"],
    "omniasr_ctc": lambda config: ["input_values:float[B,1,S]", "labels:int64[B,T]", "padding_mask:int64[B,S]=1"],
    "pix2struct": _flattened_patches,
    "siglip2": _patches,
    "voxtral_realtime": _streamed_sound,
}


def inputs(config):
    rule = RULES.get(config.model_type)
    return None if rule is None else rule(config)
