# The API with its planner and its page. Nothing here needs a GPU, torch or Ray.
FROM python:3.12-slim AS service

ENV PYTHONDONTWRITEBYTECODE=1
WORKDIR /app
COPY requirements/service.lock requirements/service.lock
RUN pip install --no-cache-dir --require-hashes -r requirements/service.lock

COPY pyproject.toml README.md LICENSE NOTICE ./
COPY automap automap
COPY planner planner
COPY profiler profiler
COPY executor executor
COPY service service
COPY migrations migrations
COPY examples examples
RUN pip install --no-cache-dir --no-deps --no-build-isolation .

# The page knows the API by its own description.
FROM service AS description
COPY page/scripts page/scripts
RUN python page/scripts/documents.py page/generated

FROM node:22-slim AS page
WORKDIR /app/page
COPY page/.npmrc page/package.json page/package-lock.json ./
RUN npm ci --no-audit --no-fund
COPY page ./
COPY --from=description /app/page/generated generated
RUN npm run build

FROM service
COPY --from=page /app/service/page service/page
# Again, now with the page. The user has a number that Kubernetes can tell from root's.
RUN pip install --no-cache-dir --no-deps --no-build-isolation --force-reinstall . \
    && useradd --create-home --uid 10001 automap \
    && install -d -o 10001 /data

USER 10001:10001
WORKDIR /data
# Only /data and /tmp are written to: the root file system may be read-only. In the folder of
# secrets a file named as a setting, automap_api_keys for example, stands for its variable.
ENV AUTOMAP_HOST=0.0.0.0 AUTOMAP_DATABASE_URL=sqlite:////data/automap.db
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s CMD \
    ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/readyz', timeout=2)"]
CMD ["automap", "serve"]
