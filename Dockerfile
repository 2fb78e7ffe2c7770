# The API with its planner. Nothing here needs a GPU, torch or Ray.
FROM python:3.12-slim

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
RUN pip install --no-cache-dir --no-deps --no-build-isolation . \
    && useradd --create-home --uid 10001 automap \
    && install -d -o automap /data

USER automap
WORKDIR /data
ENV AUTOMAP_HOST=0.0.0.0 AUTOMAP_DATABASE_URL=sqlite:////data/automap.db
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s CMD \
    ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/readyz', timeout=2)"]
CMD ["automap", "serve"]
