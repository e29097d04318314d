"""An application of Django in one file. Snowbank numbers its rows.

    pip install django gunicorn snowbank-client
    SNOWBANK=ids-1:7660,ids-2:7660 gunicorn --preload -w 4 django_orders:application

Each `GET /buy` makes an order and answers its ID.
"""

import os

import django
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.db import connection, models
from django.http import HttpRequest, HttpResponse
from django.urls import path

from snowbank_client import Client

settings.configure(
    ALLOWED_HOSTS=["127.0.0.1"],
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": os.environ.get("DATABASE", "orders.sqlite3"),
            "OPTIONS": {"timeout": 20},
        }
    },
    ROOT_URLCONF=__name__,
    SECRET_KEY="an example has no secrets",
)
django.setup()

ids = Client(os.environ.get("SNOWBANK", "127.0.0.1:7660").split(",")).ids()


def next_id() -> int:
    """Returns the ID of a new row. Migrations name this function, so it stands in a module."""
    return ids.next()


class Order(models.Model):
    """An order of the shop."""

    id = models.BigIntegerField(primary_key=True, default=next_id, editable=False)
    item = models.TextField()

    class Meta:
        app_label = "shop"


def buy(_request: HttpRequest) -> HttpResponse:
    """Makes an order."""
    order = Order.objects.create(item="tea")
    # As text: JavaScript rounds numbers above 2^53.
    return HttpResponse(str(order.id))


urlpatterns = [path("buy", buy)]
application = get_wsgi_application()

# The table and its first row, before gunicorn forks its workers.
if Order._meta.db_table not in connection.introspection.table_names():
    with connection.schema_editor() as editor:
        editor.create_model(Order)
    Order.objects.create(item="the first")
connection.close()
