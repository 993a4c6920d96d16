# What flex_attention's masks are called: none is made where attention is SDPA's or eager.
class BlockMask:
    pass
