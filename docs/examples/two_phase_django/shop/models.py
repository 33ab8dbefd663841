"""What the shop keeps."""

from django.db import models


class Order(models.Model):
    name = models.CharField(max_length=100, primary_key=True)


class Line(models.Model):
    order = models.ForeignKey(Order, on_delete=models.CASCADE)
    article = models.CharField(max_length=100)
