# The service in a container, as a user without rights, its folder in the volume /data.
#
#   docker build -t treetop .
#   docker run --rm -v shop:/data treetop init shop debian
#   docker run -p 8700:8700 -v shop:/data -e TREETOP_TOKEN=... --stop-timeout 60 treetop
#
# Every other setting of `serve` has a variable too: docker run --rm treetop serve --help.
# packaging/check_dockerfile.py runs every step of this file in clean roots, without an engine.

FROM python:3.12-slim-bookworm AS builder
ARG EXTRAS=serve,postgres
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY pyproject.toml CMakeLists.txt README.md LICENSE ./
COPY src src
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .
RUN python -m venv /opt/treetop \
    && /opt/treetop/bin/pip install --no-cache-dir --only-binary=:all: "$(echo /wheels/*.whl)[$EXTRAS]"

FROM python:3.12-slim-bookworm
RUN useradd --system --uid 10001 --create-home --home-dir /data treetop
COPY --from=builder /opt/treetop /opt/treetop
ENV PATH=/opt/treetop/bin:/usr/local/bin:/usr/bin:/bin
ENV TREETOP_FOLDER=/data/shop
ENV TREETOP_HOST=0.0.0.0
USER 10001
WORKDIR /data
VOLUME /data
EXPOSE 8700
# Slim images have no curl.
HEALTHCHECK --interval=10s --timeout=5s --start-period=2m \
    CMD ["python", "-c", "import os, urllib.request; urllib.request.urlopen(f\"http://127.0.0.1:{os.environ.get('TREETOP_PORT') or 8700}/healthz\", timeout=4)"]
ENTRYPOINT ["treetop"]
CMD ["serve"]
