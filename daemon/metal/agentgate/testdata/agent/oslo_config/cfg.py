import os
import types

CONF = types.SimpleNamespace(api_url=os.environ["API_URL"], cafile=os.environ["CAFILE"])
