// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/merge_checkpoint.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "checkpoint/adapter_files.h"
#include "checkpoint/checkpoint_files.h"
#include "checkpoint/config_reader.h"
#include "checkpoint/convert.h"
#include "checkpoint/mapped_file.h"
#include "checkpoint/merged_weights.h"
#include "checkpoint/model_folder.h"
#include "checkpoint/unfinished_folder.h"
#include "core/json_syntax.h"
#include "core/log.h"
#include "device/thread_pool.h"

namespace heddle::checkpoint {

namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr const char* kConfigJson = "config.json";

Status write_whole(const fs::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (file) return ok_status();
  return data_loss(fmt::format("cannot write {}: disk full", path.string()));
}

// A tensor of the output folder.
struct OutputTensor {
  const TensorEntry* entry = nullptr;
  bool copied = false;  // copied from the base byte for byte
  DType dtype = DType::kF32;
  int64_t num_bytes = 0;
};

std::string_view stored_name_of(DType dtype) {
  return dtype == DType::kF32 ? "F32" : dtype == DType::kBf16 ? "BF16" : "F16";
}

class MergeWriter {
 public:
  MergeWriter(const MergeOptions& options, const CheckpointFiles& files,
              const MergedWeights& weights, fs::path folder)
      : options_(options), files_(files), weights_(weights), folder_(std::move(folder)) {}

  Result<MergeReport> write() {
    plan();
    HEDDLE_RETURN_IF_ERROR(copy_beside_weights(options_.base, folder_));
    for (size_t i = 0; i < shards_.size(); ++i) HEDDLE_RETURN_IF_ERROR(write_shard(i));
    if (shards_.size() > 1) {
      const ordered_json index = {{"metadata", {{"total_size", report_.output_bytes}}},
                                  {"weight_map", weight_map_}};
      HEDDLE_RETURN_IF_ERROR(write_whole(folder_ / kIndexFile, index.dump(1)));
    }
    HEDDLE_RETURN_IF_ERROR(write_config());
    return report_;
  }

 private:
  void plan() {
    int64_t shard_size = 0;
    for (const std::string_view name : files_.names()) {
      const TensorEntry& entry = *files_.entry(name);
      OutputTensor tensor{.entry = &entry, .copied = true, .num_bytes = entry.end - entry.begin};
      const bool changed = weights_.changes(name);
      if (entry.dtype && is_convertible(*entry.dtype)) {
        tensor.dtype = options_.dtype.value_or(*entry.dtype);
        tensor.copied = !changed && tensor.dtype == *entry.dtype;
        tensor.num_bytes = bytes_of(tensor.dtype, entry.shape.num_elements());
      }
      if (shards_.empty() || shard_size >= options_.shard_bytes) {
        shards_.emplace_back();
        shard_size = 0;
      }
      shards_.back().push_back(tensor);
      shard_size += tensor.num_bytes;
      report_.output_bytes += tensor.num_bytes;
      report_.num_changed += changed ? 1 : 0;
      ++report_.num_tensors;
    }
    report_.num_shards = static_cast<int64_t>(shards_.size());
  }

  Status write_shard(size_t index) {
    const std::string name = shards_.size() == 1 ? "model.safetensors"
                                                 : fmt::format("model-{:05}-of-{:05}.safetensors",
                                                               index + 1, shards_.size());
    std::vector<StoredTensor> tensors;
    std::vector<std::vector<std::byte>> memory;
    for (const OutputTensor& tensor : shards_[index]) {
      const TensorEntry& entry = *tensor.entry;
      weight_map_[entry.name] = name;
      const StoredWeight stored = *weights_.find({.name = entry.name, .shape = entry.shape});
      StoredTensor written{
          .name = entry.name, .stored_dtype = entry.stored_dtype, .shape = entry.shape};
      if (tensor.copied) {
        written.bytes = {static_cast<const std::byte*>(stored.data),
                         static_cast<size_t>(tensor.num_bytes)};
      } else {
        // Computing a shard takes a while, so `progress` may end the run before each tensor.
        HEDDLE_RETURN_IF_ERROR(show_progress(0));
        std::vector<std::byte>& bytes = memory.emplace_back(static_cast<size_t>(tensor.num_bytes));
        compute(stored, tensor.dtype, bytes.data());
        written.stored_dtype = stored_name_of(tensor.dtype);
        written.bytes = bytes;
      }
      tensors.push_back(std::move(written));
    }
    int64_t shard_bytes = 0;
    HEDDLE_RETURN_IF_ERROR(write_stored_safetensors(folder_ / name, tensors, {{"format", "pt"}},
                                                    [&](int64_t done, int64_t total) {
                                                      shard_bytes = total;
                                                      return show_progress(done);
                                                    }));
    done_bytes_ += shard_bytes;
    return ok_status();
  }

  void compute(const StoredWeight& stored, DType dtype, std::byte* target) {
    // elements of one task, which takes a millisecond or more
    constexpr int64_t kPiece = int64_t{1} << 18;
    const int64_t count = stored.shape.num_elements();
    pool_.parallel_for((count + kPiece - 1) / kPiece, [&](int64_t piece, int /*worker*/) {
      const int64_t first = piece * kPiece;
      weights_.read(stored, first, std::min(kPiece, count - first), dtype,
                    target + bytes_of(dtype, first));
    });
  }

  // `bytes`: how many bytes of the current shard have been written.
  [[nodiscard]] Status show_progress(int64_t bytes) const {
    return options_.progress ? options_.progress(done_bytes_ + bytes, report_.output_bytes)
                             : ok_status();
  }

  [[nodiscard]] Status write_config() const {
    const fs::path path = options_.base / kConfigJson;
    HEDDLE_ASSIGN_OR_RETURN(std::string text, read_text_file(path, kMaxConfigBytes));
    if (options_.dtype) {
      HEDDLE_ASSIGN_OR_RETURN(const std::string strict, strict_json(text));
      ordered_json config = ordered_json::parse(strict, nullptr, /*allow_exceptions=*/false);
      if (!config.is_object()) {
        return data_loss(fmt::format("{} is not a JSON object", path.string()));
      }
      config[config.contains("torch_dtype") ? "torch_dtype" : "dtype"] = to_string(*options_.dtype);
      text = config.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
    }
    return write_whole(folder_ / kConfigJson, text);
  }

  const MergeOptions& options_;
  const CheckpointFiles& files_;
  const MergedWeights& weights_;
  const fs::path folder_;
  std::vector<std::vector<OutputTensor>> shards_;
  std::map<std::string, std::string> weight_map_;
  MergeReport report_;
  device::ThreadPool pool_;
  int64_t done_bytes_ = 0;  // bytes of the shards that are finished
};

Result<std::vector<ScaledAdapter>> open_adapters(const MergeOptions& options) {
  std::vector<ScaledAdapter> adapters;
  for (const MergeOptions::Adapter& adapter : options.adapters) {
    if (!std::isfinite(adapter.scale)) {
      return invalid_argument(fmt::format("the scale of {} is {}; write a finite number",
                                          adapter.folder.string(), adapter.scale));
    }
    HEDDLE_ASSIGN_OR_RETURN(AdapterFiles files, AdapterFiles::open(adapter.folder));
    adapters.push_back({.files = std::move(files), .scale = adapter.scale});
  }
  return adapters;
}

}  // namespace

Result<MergeReport> merge_checkpoint(const MergeOptions& options,
                                     std::span<const WeightSpec> specs) {
  HEDDLE_ASSIGN_OR_RETURN(const fs::path output, UnfinishedFolder::check_output(options.output));
  HEDDLE_RETURN_IF_ERROR(check_safetensors_folder(options.base, "heddle merge"));
  HEDDLE_ASSIGN_OR_RETURN(std::vector<ScaledAdapter> adapters, open_adapters(options));
  HEDDLE_ASSIGN_OR_RETURN(CheckpointFiles opened, CheckpointFiles::open(options.base));
  auto base = std::make_unique<const CheckpointFiles>(std::move(opened));
  const CheckpointFiles& files = *base;
  HEDDLE_ASSIGN_OR_RETURN(const std::unique_ptr<const MergedWeights> weights,
                          MergedWeights::create(std::move(base), specs, std::move(adapters)));
  for (const std::string& note : weights->notes()) log_warning(note);
  HEDDLE_ASSIGN_OR_RETURN(UnfinishedFolder folder, UnfinishedFolder::create(output));
  HEDDLE_ASSIGN_OR_RETURN(const MergeReport report,
                          MergeWriter(options, files, *weights, folder.path()).write());
  HEDDLE_RETURN_IF_ERROR(folder.finish(output));
  return report;
}

}  // namespace heddle::checkpoint
