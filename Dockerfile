# The collector's image: `docker compose build collector`, or `docker build --tag waybill .` in this folder.
FROM python:3.13.9-slim-bookworm AS build

ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    UV_LINK_MODE=copy \
    UV_NO_CACHE=1 \
    UV_PROJECT_ENVIRONMENT=/opt/waybill \
    UV_PYTHON_DOWNLOADS=never
RUN pip install --no-cache-dir uv==0.13.8
WORKDIR /src
COPY pyproject.toml uv.lock README.md LICENSE ./
# The dependencies change less often than the code, so they have their own layer.
RUN uv sync --locked --no-dev --no-install-project --extra collector --extra export --extra kafka --extra postgres --extra sql
COPY src src
COPY facets facets
COPY transport transport
COPY pipelines pipelines
COPY marquez marquez
COPY exporter exporter
COPY lineage lineage
COPY collector collector
COPY spark spark
COPY cli cli
RUN uv sync --locked --no-dev --no-editable --extra collector --extra export --extra kafka --extra postgres --extra sql

FROM python:3.13.9-slim-bookworm

# A new volume that is mounted here gets the owner of this folder.
RUN useradd --uid 1000 --create-home waybill \
    && install --directory --owner=waybill --group=waybill --mode=0700 /var/lib/waybill
COPY --from=build /opt/waybill /opt/waybill
# To listen outside the container, the collector needs keys (`waybill keys add`), or the command `serve --without-keys`
# if only this machine reaches the published port.
ENV PATH=/opt/waybill/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    WAYBILL_HOME=/var/lib/waybill \
    WAYBILL_LISTEN=0.0.0.0:8090
USER waybill
WORKDIR /var/lib/waybill
VOLUME /var/lib/waybill
EXPOSE 8090
HEALTHCHECK --interval=5s --timeout=5s --start-period=30s --retries=6 \
    CMD ["python", "-c", "from http.client import HTTPConnection as C; c = C('127.0.0.1', 8090, timeout=4); c.request('GET', '/health/ready'); raise SystemExit(c.getresponse().status != 200)"]
ENTRYPOINT ["waybill"]
CMD ["serve"]
