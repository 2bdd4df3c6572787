# SPDX-License-Identifier: Apache-2.0
# The server for CPUs, built on a clean Debian 12:
#
#   docker build -t heddle .
#   docker run --rm -p 30000:30000 heddle                                          # the small model
#   docker run --rm -p 30000:30000 -v /srv/models/mine:/model:ro heddle /model --api-key KEY
#
# Arguments go to `heddle serve`. Docker's default of 10 s to stop is too short for running requests
# (--shutdown-timeout-secs): docker run --stop-timeout 45.
FROM debian:12-slim AS build
WORKDIR /heddle
# The packages alone are a layer of their own, which a change of the sources leaves.
COPY run ./
RUN ./run setup
COPY . .
RUN ./run build cpu

FROM debian:12-slim
RUN apt-get update -qq \
  && apt-get install -y -qq --no-install-recommends \
    libdnnl2 libedit2 libfmt9 libgomp1 libhwy1 libpcre2-8-0 libprometheus-cpp-core1.0 libsentencepiece0 \
    libsimdjson14 libssl3 libutf8proc2 libyaml-cpp0.7 \
  && rm -rf /var/lib/apt/lists/* \
  && useradd --system --create-home --home-dir /var/lib/heddle heddle
COPY --from=build /heddle/build/cpu/bin/heddle /usr/local/bin/heddle
COPY --from=build /heddle/models/heddle-tiny /usr/local/models/heddle-tiny
USER heddle
WORKDIR /var/lib/heddle
EXPOSE 30000
ENTRYPOINT ["heddle", "serve", "--host", "0.0.0.0"]
