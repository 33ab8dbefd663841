# `fencepost test-broker`: a broker for each test, in any language, with a control API over HTTP. For tests alone: nothing
# is stored, and everyone who reaches the API can drive the brokers, so publish its ports on this machine alone.
#   docker build -f docker/test-broker.Dockerfile -t fencepost-test-broker .
#   docker run -p 127.0.0.1:8093:8093 -p 127.0.0.1:29092-29111:29092-29111 fencepost-test-broker
# docs/testing-other-languages.md shows it in Testcontainers.
#
# The base image is pinned; `docker buildx imagetools inspect python:3.13-slim` shows the digest of a newer one.
ARG PYTHON=python:3.13.9-slim@sha256:326df678c20c78d465db501563f3492d17c42a4afe33a1f2bf5406a1d56b0e86
FROM $PYTHON AS build
WORKDIR /source
COPY requirements requirements
RUN python -m venv /opt/build \
    && /opt/build/bin/pip install --no-cache-dir --require-hashes --requirement requirements/build.lock \
    && python -m venv /opt/fencepost \
    && /opt/fencepost/bin/pip install --no-cache-dir --require-hashes --requirement requirements/test-broker-image.lock
COPY pyproject.toml README.md LICENSE ./
COPY fencepost fencepost
RUN /opt/build/bin/pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /tmp/wheels . \
    && /opt/fencepost/bin/pip install --no-cache-dir --no-deps /tmp/wheels/*.whl \
    && /opt/fencepost/bin/pip uninstall --yes pip

FROM $PYTHON
COPY --from=build /opt/fencepost /opt/fencepost
RUN groupadd --system --gid 10001 fencepost \
    && useradd --system --uid 10001 --gid fencepost --home-dir /tmp --no-create-home fencepost
ENV PATH=/opt/fencepost/bin:$PATH PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /tmp
EXPOSE 8093 29092-29111
HEALTHCHECK --interval=3s --timeout=5s --start-period=60s \
    CMD ["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/8093 && printf 'GET / HTTP/1.0\\r\\nHost: localhost\\r\\n\\r\\n' >&3 && grep -q '^HTTP/1.1 200' <&3"]
# A published port must have the same number outside: clients connect to the one in the broker's reply.
ENTRYPOINT ["fencepost", "test-broker"]
CMD ["--json", "--port", "8093", "--published-ports", "29092-29111"]
