"""What crosses between two cells beside plain values: classes, their objects,
exceptions, generators, values of the standard library.

Few candidates need it; cellpeer loads it for them.
"""

from cellanswers import HANDLERS, SERVER_HANDLERS, signature  # noqa: F401
from cellclasses import Module, RemoteType  # noqa: F401
from celldecode import create, dec, fill  # noqa: F401
from cellencode import contents, enc, enc_function, rest  # noqa: F401
from cellguard import PREDICATES, Guard  # noqa: F401
from celltypes import enc_type  # noqa: F401
