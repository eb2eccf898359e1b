# Two images out of one file:
#
#   docker build -t aibrix-operator:0.8.0 .                                   operator and gateway: no shell, 360 MB
#   docker build -t aibrix-runtime:0.8.0 --target runtime .                   the sidecar, beside an engine's Python
#
# Bases are pinned by tags that their publishers do not move; docs/install.md says how to pin digests, and how to make
# an SBOM. `make image` makes the first of them without Docker, out of the same `python -m image`.
ARG PYTHON_IMAGE=python:3.11.14-slim-bookworm
ARG ENGINE_IMAGE=vllm/vllm-openai:v0.11.0

FROM ${PYTHON_IMAGE} AS build
WORKDIR /src
COPY requirements/runtime.lock requirements/runtime.lock
RUN pip install --no-cache-dir --no-compile --require-hashes --target /site -r requirements/runtime.lock
COPY aibrix_operator aibrix_operator
COPY crds crds
COPY image image
# The layout needs the package itself for its version, and that its dependencies.
RUN mkdir /rootfs && PYTHONPATH=/site:/src python -m image --site /site --root /rootfs

# The engines' own Python stays as it is: what the sidecar needs lies in an environment of its own beside it.
FROM ${ENGINE_IMAGE} AS runtime
COPY requirements/runtime.lock /opt/aibrix/runtime.lock
RUN python3 -m venv /opt/aibrix/venv \
    && /opt/aibrix/venv/bin/pip install --no-cache-dir --require-hashes -r /opt/aibrix/runtime.lock
COPY --from=build /rootfs/usr/local/lib/python3.11/site-packages/aibrix_operator /opt/aibrix/package/aibrix_operator
ENV AIBRIX_ENGINE_PYTHON=/usr/bin/python3 HOME=/home/nonroot USER=nonroot
RUN useradd --uid 65532 --create-home nonroot && mkdir -p /var/run/aibrix && chown 65532:65532 /var/run/aibrix
USER 65532:65532
# The package's folder is named on the command line and not in PYTHONPATH, which engines would inherit.
ENTRYPOINT ["/opt/aibrix/venv/bin/python", "-c", "import sys; sys.path.insert(0, '/opt/aibrix/package'); from aibrix_operator.cli import main; main()"]
CMD ["runtime"]

FROM scratch AS operator
LABEL org.opencontainers.image.title=aibrix-operator org.opencontainers.image.licenses=Apache-2.0
COPY --from=build /rootfs /
ENV PATH=/usr/local/bin HOME=/home/nonroot USER=nonroot LANG=C.UTF-8 \
    SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt PYTHONUNBUFFERED=1
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/aibrix-operator"]
CMD ["--help"]
