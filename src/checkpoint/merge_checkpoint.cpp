// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/merge_checkpoint.h"

#include <algorithm>
#include <cmath>
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
#include "checkpoint/model_output.h"
#include "checkpoint/readable.h"
#include "checkpoint/unfinished_folder.h"
#include "core/json_syntax.h"
#include "core/log.h"
#include "device/thread_pool.h"

namespace heddle::checkpoint {

namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr const char* kConfigJson = "config.json";

Result<ordered_json> read_base_config(const fs::path& folder) {
  const fs::path path = folder / kConfigJson;
  HEDDLE_ASSIGN_OR_RETURN(const std::string text, read_text_file(path, kMaxConfigBytes));
  HEDDLE_ASSIGN_OR_RETURN(const std::string strict, strict_json(text));
  ordered_json config = ordered_json::parse(strict, nullptr, /*allow_exceptions=*/false);
  if (config.is_object()) return config;
  return data_loss(fmt::format("{} is not a JSON object", path.string()));
}

// Refuses quantised models: another output dtype would also round the scales of their weights,
// which are stored as plain fp32, bf16 or fp16 tensors.
Status check_not_quantised(const fs::path& folder, const CheckpointFiles& files) {
  HEDDLE_ASSIGN_OR_RETURN(const ordered_json config, read_base_config(folder));
  std::string sign;
  for (const ordered_json* part :
       {&config, config.contains("text_config") ? &config["text_config"] : nullptr}) {
    for (const char* const key : {"quantization_config", "compression_config"}) {
      if (part == nullptr || !part->is_object() || !part->contains(key)) continue;
      if (!(*part)[key].is_null()) sign = fmt::format("its {} has {}", kConfigJson, key);
    }
  }
  for (const std::string_view name : files.names()) {
    const TensorEntry& entry = *files.entry(name);
    constexpr std::string_view kNeverCodes[] = {"I64", "F64", "BOOL"};  // dtypes of ids and masks
    const bool is_plain =
        (entry.dtype && is_convertible(*entry.dtype)) ||
        std::ranges::find(kNeverCodes, entry.stored_dtype) != std::end(kNeverCodes);
    if (is_plain || entry.shape.rank() < 2) continue;
    sign = fmt::format("tensor {} is stored as {}", readable(name), entry.stored_dtype);
  }
  if (sign.empty()) return ok_status();
  return unimplemented(fmt::format(
      "the model is quantised: {}. Another dtype would round the scales of its weights; "
      "leave --dtype out",
      sign));
}

// A tensor that the merged checkpoint contains.
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
      HEDDLE_RETURN_IF_ERROR(write_index(folder_, shard_of_, report_.output_bytes));
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
      ++report_.num_tensors;
    }
    report_.num_changed = weights_.num_changed();
    report_.num_shards = static_cast<int64_t>(shards_.size());
  }

  Status write_shard(size_t index) {
    const std::string name = shard_name(index, shards_.size());
    std::vector<StoredTensor> tensors;
    std::vector<std::vector<std::byte>> memory;
    for (const OutputTensor& tensor : shards_[index]) {
      const TensorEntry& entry = *tensor.entry;
      shard_of_[entry.name] = name;
      const StoredWeight stored = *weights_.find({.name = entry.name, .shape = entry.shape});
      StoredTensor written{
          .name = entry.name, .stored_dtype = entry.stored_dtype, .shape = entry.shape};
      if (tensor.copied) {
        written.bytes = {static_cast<const std::byte*>(stored.data),
                         static_cast<size_t>(tensor.num_bytes)};
      } else {
        // Computing a shard takes a while, so `progress` is called before each tensor and may end
        // the run.
        HEDDLE_RETURN_IF_ERROR(show_progress(0));
        std::vector<std::byte>& bytes = memory.emplace_back(static_cast<size_t>(tensor.num_bytes));
        HEDDLE_RETURN_IF_ERROR(compute(stored, tensor.dtype, bytes.data()));
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

  // Error: kInvalidArgument if an element is not finite.
  Status compute(const StoredWeight& stored, DType dtype, std::byte* target) {
    // elements of one task, which takes a millisecond or more
    constexpr int64_t kPiece = int64_t{1} << 18;
    const int64_t count = stored.shape.num_elements();
    const int64_t num_pieces = (count + kPiece - 1) / kPiece;
    std::vector<std::optional<int64_t>> wrong(static_cast<size_t>(num_pieces));
    pool_.parallel_for(num_pieces, [&](int64_t piece, int /*worker*/) {
      const int64_t first = piece * kPiece;
      const int64_t length = std::min(kPiece, count - first);
      std::byte* const out = target + bytes_of(dtype, first);
      weights_.read(stored, first, length, dtype, out);
      wrong[static_cast<size_t>(piece)] = first_not_finite(out, dtype, length);
    });
    for (int64_t piece = 0; piece < num_pieces; ++piece) {
      const std::optional<int64_t> at = wrong[static_cast<size_t>(piece)];
      if (at) return not_finite(stored, dtype, piece * kPiece + *at);
    }
    return ok_status();
  }

  [[nodiscard]] Status not_finite(const StoredWeight& stored, DType dtype, int64_t element) const {
    float base = 0, merged = 0;
    files_.read(*files_.find({.name = stored.name, .shape = stored.shape}), element, 1, DType::kF32,
                &base);
    weights_.read(stored, element, 1, DType::kF32, &merged);
    if (!std::isfinite(base)) {
      return invalid_argument(
          fmt::format("tensor {} of the base has {} at element {}; download the model again",
                      readable(stored.name), base, element));
    }
    if (!std::isfinite(merged)) {
      return invalid_argument(fmt::format(
          "element {} of the merged tensor {} is {}, the base has {}; give a smaller --scale, and "
          "check that the adapter is of this base",
          element, readable(stored.name), merged, base));
    }
    return invalid_argument(
        fmt::format("element {} of the merged tensor {} is {}, which {} cannot hold; write "
                    "--dtype float32{}, or give a smaller --scale",
                    element, readable(stored.name), merged, to_string(dtype),
                    dtype == DType::kF16 ? " or bfloat16" : ""));
  }

  // `bytes`: how many bytes of the current shard have been written.
  [[nodiscard]] Status show_progress(int64_t bytes) const {
    return options_.progress ? options_.progress(done_bytes_ + bytes, report_.output_bytes)
                             : ok_status();
  }

  [[nodiscard]] Status write_config() const {
    if (!options_.dtype) {
      const fs::path path = options_.base / kConfigJson;
      HEDDLE_ASSIGN_OR_RETURN(const std::string text, read_text_file(path, kMaxConfigBytes));
      return write_text(folder_ / kConfigJson, text);
    }
    HEDDLE_ASSIGN_OR_RETURN(ordered_json config, read_base_config(options_.base));
    config[config.contains("torch_dtype") ? "torch_dtype" : "dtype"] = to_string(*options_.dtype);
    return write_text(folder_ / kConfigJson,
                      config.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n");
  }

  const MergeOptions& options_;
  const CheckpointFiles& files_;
  const MergedWeights& weights_;
  const fs::path folder_;
  std::vector<std::vector<OutputTensor>> shards_;
  std::map<std::string, std::string> shard_of_;
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
  HEDDLE_ASSIGN_OR_RETURN(const fs::path output, check_output(options.output));
  HEDDLE_ASSIGN_OR_RETURN(std::vector<ScaledAdapter> adapters, open_adapters(options));
  HEDDLE_ASSIGN_OR_RETURN(CheckpointFiles opened, CheckpointFiles::open(options.base));
  auto base = std::make_unique<const CheckpointFiles>(std::move(opened));
  const CheckpointFiles& files = *base;
  if (options.dtype) HEDDLE_RETURN_IF_ERROR(check_not_quantised(options.base, files));
  HEDDLE_ASSIGN_OR_RETURN(const std::unique_ptr<const MergedWeights> weights,
                          MergedWeights::create(std::move(base), specs, std::move(adapters)));
  if (const std::string unread = files.unread_files(); !unread.empty()) log_info(unread);
  for (const std::string& note : weights->notes()) log_warning(note);
  HEDDLE_ASSIGN_OR_RETURN(UnfinishedFolder folder, UnfinishedFolder::create(output));
  HEDDLE_ASSIGN_OR_RETURN(const MergeReport report,
                          MergeWriter(options, files, *weights, folder.path()).write());
  HEDDLE_RETURN_IF_ERROR(folder.finish());
  return report;
}

}  // namespace heddle::checkpoint
