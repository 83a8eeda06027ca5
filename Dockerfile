# A CPU by default; a GPU: docker build --build-arg TORCH=cuda -t asac . && docker run --gpus all asac …
ARG PYTHON=3.11

FROM python:${PYTHON}-slim-bookworm AS build
ARG PYTHON
ARG TORCH=cpu
ARG EXTRAS=bullet,ds,tasks,video
RUN apt-get update && apt-get install -y --no-install-recommends g++ swig && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY constraints constraints
RUN python -m venv /opt/asac
# torch comes first: of its own, large layer, and from the index of the device
RUN version="$(grep '^torch==' constraints/python${PYTHON}.txt)" \
    && if [ "$TORCH" = cpu ]; then \
        /opt/asac/bin/pip install --no-cache-dir --index-url https://download.pytorch.org/whl/cpu "$version"; \
    else \
        /opt/asac/bin/pip install --no-cache-dir "$version"; \
    fi
COPY pyproject.toml README.md requirements.txt ./
COPY algorithm algorithm
COPY asac asac
COPY ds ds
COPY envs envs
RUN /opt/asac/bin/pip install --no-cache-dir --constraint constraints/python${PYTHON}.txt ".[${EXTRAS}]"

FROM python:${PYTHON}-slim-bookworm
# g++ compiles long trainings (sac_config.compile); the libraries are those of renderers
RUN apt-get update \
    && apt-get install -y --no-install-recommends g++ libegl1 libgl1 libosmesa6 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home asac \
    && install -d -o asac -g asac /data /data/models /data/.secrets
COPY --from=build /opt/asac /opt/asac
ENV PATH=/opt/asac/bin:$PATH \
    OMP_NUM_THREADS=1 \
    SDL_VIDEODRIVER=dummy
USER asac
WORKDIR /data
VOLUME ["/data/models"]
ENTRYPOINT ["asac"]
CMD ["--list"]
