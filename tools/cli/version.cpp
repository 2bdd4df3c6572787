// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/version.h"

#include <cstdio>

#include <fmt/format.h>

#include "device/cuda/cuda_device.h"
#include "tools/cli/machine.h"
#include "tools/cli/subcommand.h"

namespace heddle::tools {
namespace {

std::string gpus() {
  const Result<int> count = device::num_cuda_devices();
  if (!count.ok()) return fmt::format("no GPU: {}", count.status().message());
  return fmt::format("{} NVIDIA GPU{}", *count, *count == 1 ? "" : "s");
}

std::function<int()> declare_version(Options& options) {
  options.examples("heddle version");
  return [] {
    fmt::print("{}\n", version_text());
    return 0;
  };
}

}  // namespace

std::string version_text() {
  return fmt::format("heddle {}\ncommit    {}\ncompiler  {}\ndevices   {}; {}", HEDDLE_VERSION,
                     built_commit(), built_with(), cpu_model(), gpus());
}

const Subcommand kVersion = {.name = "version",
                             .summary = "Show the version, the commit and the devices.",
                             .declare = declare_version};

}  // namespace heddle::tools
