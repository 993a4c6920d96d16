from timm.models._factory import create_model

__version__ = "1.0"
