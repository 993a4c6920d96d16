# Upstream's imports every file of the package, so that each puts its functions into the registry.
from timm.models._factory import create_model
