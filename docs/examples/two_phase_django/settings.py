"""Settings of a project with one application. A real one has PostgreSQL, and PostgresLog in shop/orders.py."""

SECRET_KEY = "an example has none"
INSTALLED_APPS = ["shop"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.sqlite"}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
