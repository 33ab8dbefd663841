# The pipeline of scripts/pipeline: loader, exactly-once application, Spark job. docker/compose.yaml runs them.
#   docker build -f docker/pipeline.Dockerfile -t fencepost-pipeline .
# Debian 12 is the last one with Java 17, the oldest that Spark 4 runs on. The base image is pinned;
# `docker buildx imagetools inspect python:3.11-slim-bookworm` shows the digest of a newer one.
FROM python:3.11-slim-bookworm@sha256:a36c24f9cbdf4fd0f52d67f0823eeac19c2028c637cecc392d97f980d4fec56b
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless procps \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /pipeline
COPY requirements requirements
# PySpark is built from its source distribution, with the setuptools of the base image.
RUN pip install --no-cache-dir --no-deps --no-build-isolation --require-hashes --requirement requirements/pipeline-image.lock
RUN groupadd --system --gid 10002 pipeline \
    && useradd --system --uid 10002 --gid pipeline --home-dir /pipeline --no-create-home pipeline \
    && install --directory --owner=pipeline --group=pipeline .cache /checkpoint
COPY fencepost/__init__.py fencepost/__init__.py
COPY fencepost/spark fencepost/spark
COPY fencepost/two_phase fencepost/two_phase
COPY scripts/pipeline scripts/pipeline
ENV PYTHONPATH=/pipeline PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10002:10002
# Spark's Kafka connector is resolved once, here, and not at every start.
RUN python -c 'from scripts.pipeline.flights_summary import spark_session; spark_session("connector").stop()'
VOLUME /checkpoint
CMD ["python", "-m", "scripts.pipeline.flights", "--help"]
