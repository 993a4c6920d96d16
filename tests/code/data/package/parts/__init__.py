from .inner import depth
from .inner.names import *
