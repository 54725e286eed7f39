# duallgd for a processor. PyTorch's own index of CPU builds makes the image gigabytes smaller, one of
# CUDA builds makes it run on a GPU: --build-arg TORCH_INDEX=ADDRESS
#   docker build -t duallgd .
#   docker run --rm -v "$PWD:/data" duallgd predict spectra.mgf -o structures.csv
FROM python:3.12-slim
ARG TORCH_INDEX=
ENV PIP_NO_CACHE_DIR=1 PYTHONDONTWRITEBYTECODE=1 OMP_WAIT_POLICY=PASSIVE
RUN apt-get update \
    && apt-get install -y --no-install-recommends libxrender1 libxext6 libexpat1 \
    && rm -rf /var/lib/apt/lists/*
# PyTorch's own tests and headers, which nothing here reads, are 150 MB.
RUN pip install ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} "torch>=2.11" \
    && cd "$(python -c 'import torch; print(torch.__path__[0])')" \
    && rm -rf test include
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY duallgd_cli duallgd_cli
COPY weights weights
RUN pip install . && duallgd selftest && rm -rf /src
RUN useradd --create-home user
USER user
WORKDIR /data
ENTRYPOINT ["duallgd"]
CMD ["--help"]
