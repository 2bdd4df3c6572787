// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/quantise_checkpoint.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>
#include <memory>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint_files.h"
#include "checkpoint/config_reader.h"
#include "checkpoint/convert.h"
#include "checkpoint/mapped_file.h"
#include "checkpoint/model_folder.h"
#include "checkpoint/model_output.h"
#include "checkpoint/packed_load.h"
#include "checkpoint/readable.h"
#include "core/json_syntax.h"
#include "core/log.h"
#include "quant/file_formats.h"
#include "quant/round_to_nearest.h"

namespace heddle::checkpoint {

namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr std::string_view kWeightSuffix = ".weight";
constexpr int64_t kMaxConfigTextBytes = int64_t{16} << 20;

const char* name_of(QuantisedFormat format) {
  switch (format) {
    case QuantisedFormat::kAwq:
      return "awq";
    case QuantisedFormat::kFp8Block:
      return "fp8-block";
    case QuantisedFormat::kInt8:
      return "int8";
  }
  return "unknown";
}

std::string module_of_weight(std::string_view tensor) {
  return std::string(tensor.substr(0, tensor.size() - kWeightSuffix.size()));
}

// A tensor to write and the memory that its views point to.
struct OwnedTensor {
  NamedTensor named;
  std::shared_ptr<const void> memory;
};

template <typename Scalar>
OwnedTensor own(std::string name, DType dtype, const Shape& shape, std::vector<Scalar> data) {
  auto memory = std::make_shared<std::vector<Scalar>>(std::move(data));
  const TensorView view(memory->data(), dtype, shape);
  return {.named = {std::move(name), view}, .memory = std::move(memory)};
}

std::vector<OwnedTensor> awq_tensors(const std::string& module, const float* w, int64_t N,
                                     int64_t K, int64_t group_size) {
  quant::AwqTensors packed =
      quant::pack_awq(quant::round_to_nearest(w, N, K, quant::Scheme::kInt4, group_size));
  const int64_t groups = K / group_size;
  std::vector<OwnedTensor> out;
  out.push_back(own(module + ".qweight", DType::kI32, {K, N / 8}, std::move(packed.qweight)));
  out.push_back(own(module + ".qzeros", DType::kI32, {groups, N / 8}, std::move(packed.qzeros)));
  out.push_back(own(module + ".scales", DType::kF16, {groups, N}, std::move(packed.scales)));
  return out;
}

std::vector<float> as_floats(const std::vector<std::byte>& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

std::vector<OwnedTensor> fp8_tensors(const std::string& module, const float* w, int64_t N,
                                     int64_t K) {
  constexpr int64_t kBlock = 128;
  quant::UnpackedMatrix matrix = quant::round_to_nearest(w, N, K, quant::Scheme::kFp8Block, kBlock);
  const int64_t groups = matrix.format.num_groups();
  const std::vector<float> row_scales = as_floats(matrix.scales);
  std::vector<float> scales;
  for (int64_t n = 0; n < N; n += kBlock) {
    scales.insert(scales.end(), row_scales.begin() + n * groups,
                  row_scales.begin() + (n + 1) * groups);
  }
  const int64_t blocks = (N + kBlock - 1) / kBlock;
  std::vector<OwnedTensor> out;
  out.push_back(own(module + ".weight", DType::kF8E4M3, {N, K}, std::move(matrix.codes)));
  out.push_back(
      own(module + ".weight_scale_inv", DType::kF32, {blocks, groups}, std::move(scales)));
  return out;
}

std::vector<OwnedTensor> int8_tensors(const std::string& module, const float* w, int64_t N,
                                      int64_t K) {
  quant::UnpackedMatrix matrix = quant::round_to_nearest(w, N, K, quant::Scheme::kInt8, K);
  for (uint8_t& code : matrix.codes)
    code ^= 0x80;  // compressed-tensors stores signed codes:
                   // removes the offset of 128
  std::vector<OwnedTensor> out;
  out.push_back(own(module + ".weight", DType::kI8, {N, K}, std::move(matrix.codes)));
  out.push_back(own(module + ".weight_scale", DType::kF32, {N, 1}, as_floats(matrix.scales)));
  return out;
}

ordered_json quantization_json(const QuantiseOptions& options,
                               const std::vector<std::string>& plain_modules) {
  switch (options.format) {
    case QuantisedFormat::kAwq:
      return {
          {"quant_method", "awq"}, {"bits", 4},         {"group_size", options.group_size},
          {"zero_point", true},    {"version", "gemm"}, {"modules_to_not_convert", plain_modules}};
    case QuantisedFormat::kFp8Block:
      return {{"quant_method", "fp8"},
              {"fmt", "e4m3"},
              {"activation_scheme", "dynamic"},
              {"weight_block_size", {128, 128}},
              {"modules_to_not_convert", plain_modules}};
    case QuantisedFormat::kInt8:
      break;
  }
  const ordered_json weights = {{"num_bits", 8},     {"type", "int"},    {"strategy", "channel"},
                                {"symmetric", true}, {"dynamic", false}, {"group_size", nullptr}};
  const ordered_json activations = {{"num_bits", 8},
                                    {"type", "int"},
                                    {"strategy", "token"},
                                    {"symmetric", true},
                                    {"dynamic", true}};
  return {
      {"quant_method", "compressed-tensors"},
      {"format", "int-quantized"},
      {"quantization_status", "compressed"},
      {"ignore", plain_modules},
      {"config_groups",
       {{"group_0",
         {{"targets", {"Linear"}}, {"weights", weights}, {"input_activations", activations}}}}}};
}

class Quantiser {
 public:
  // `output`: a path without a slash at its end.
  Quantiser(const QuantiseOptions& options, fs::path output, QuantiseSource source,
            ordered_json config)
      : options_(options),
        source_(std::move(source)),
        config_(std::move(config)),
        output_(std::move(output)) {
    folder_ = output_;
    folder_ += ".partial";
  }

  Result<QuantiseReport> run() {
    plan();
    HEDDLE_RETURN_IF_ERROR(open_folder());
    for (size_t i = 0; i < shards_.size(); ++i) HEDDLE_RETURN_IF_ERROR(write_shard(i));
    if (shards_.size() > 1) {
      HEDDLE_RETURN_IF_ERROR(write_index(folder_, shard_of_, report_.output_bytes));
    }
    HEDDLE_RETURN_IF_ERROR(write_config());
    HEDDLE_RETURN_IF_ERROR(copy_other_files());
    std::error_code error;
    fs::rename(folder_, output_, error);
    if (error) {
      return data_loss(fmt::format("cannot rename {} to {}: {}", folder_.string(), output_.string(),
                                   error.message()));
    }
    // Deleted after the rename: an unfinished folder without its plan could be continued with other
    // options.
    fs::remove(output_ / kPlanFile, error);
    return std::move(report_);
  }

 private:
  static constexpr const char* kPlanFile = "quantize_plan.json";

  struct Job {
    std::string name;
    bool quantised = false;
  };

  [[nodiscard]] Rounding rounding() const {
    return {.scheme = options_.format == QuantisedFormat::kAwq ? quant::Scheme::kInt4
                                                               : quant::Scheme::kInt8,
            .group_size = options_.group_size,
            .include_lm_head = options_.include_lm_head};
  }

  [[nodiscard]] StoredWeight stored(std::string_view name) const {
    return *source_.weights->find({.name = name, .shape = {}});
  }

  static int64_t num_bytes(const StoredWeight& weight) {
    return bytes_of(*weight.dtype, weight.shape.num_elements());
  }

  // Decides which tensors are quantised and in which shard each tensor goes.
  void plan() {
    int64_t shard_size = 0;
    for (const std::string_view name : source_.weights->names()) {
      const StoredWeight entry = stored(name);
      const int64_t bytes = num_bytes(entry);
      report_.source_bytes += bytes;
      const bool worth = name.ends_with(kWeightSuffix) && entry.shape.rank() == 2 && entry.dtype &&
                         is_convertible(*entry.dtype) &&
                         is_quantisable(name, entry.shape.rank(), options_.include_lm_head);
      const bool awq = options_.format == QuantisedFormat::kAwq;
      const bool fits =
          worth && width_fits(entry.shape[1], rounding()) && (!awq || entry.shape[0] % 8 == 0);
      if (worth && !fits) {
        report_.unfit.push_back(fmt::format("{} {}", readable(name), entry.shape.to_string()));
      }
      const bool is_embedding = name.find("embed") != std::string_view::npos;
      if (!fits && name.ends_with(kWeightSuffix) && entry.shape.rank() == 2 && !is_embedding) {
        plain_modules_.push_back(module_of_weight(name));
      }
      report_.num_quantised += fits ? 1 : 0;
      if (shards_.empty() || shard_size >= options_.shard_bytes) {
        shards_.emplace_back();
        shard_size = 0;
      }
      shards_.back().push_back({std::string(name), fits});
      shard_size += fits ? bytes / 2 : bytes;
    }
    report_.num_shards = static_cast<int64_t>(shards_.size());
  }

  // Creates the folder or opens the one to continue. Error: the folder belongs to a run with other
  // options.
  Status open_folder() {
    std::error_code error;
    fs::create_directories(folder_, error);
    if (error) {
      return data_loss(fmt::format("cannot make {}: {}", folder_.string(), error.message()));
    }
    const ordered_json plan = {{"source", fs::absolute(options_.source).string()},
                               {"source_bytes", report_.source_bytes},
                               {"format", name_of(options_.format)},
                               {"group_size", options_.group_size},
                               {"include_lm_head", options_.include_lm_head},
                               {"num_shards", report_.num_shards}};
    const fs::path path = folder_ / kPlanFile;
    if (!fs::exists(path, error)) return write_text(path, plan.dump(1));
    HEDDLE_ASSIGN_OR_RETURN(const std::string text, read_text_file(path, kMaxConfigTextBytes));
    if (text == plan.dump(1)) return remove_unfinished_files();
    return invalid_argument(
        fmt::format("{} was begun with other options or another source; remove it to begin again",
                    folder_.string()));
  }

  // Deletes the temporary files that write_safetensors() had not finished when an earlier run was
  // killed.
  Status remove_unfinished_files() const {
    std::error_code error;
    std::vector<fs::path> unfinished;
    fs::directory_iterator files(folder_, error);
    for (; !error && files != fs::directory_iterator(); files.increment(error)) {
      if (files->path().extension() == ".tmp") unfinished.push_back(files->path());
    }
    for (const fs::path& path : unfinished) {
      if (!error) fs::remove(path, error);
    }
    if (!error) return ok_status();
    return data_loss(fmt::format("cannot clean {}: {}", folder_.string(), error.message()));
  }

  Status write_shard(size_t index) {
    const fs::path path = folder_ / shard_name(index, shards_.size());
    int64_t shard_bytes = 0;
    for (const Job& job : shards_[index]) shard_bytes += num_bytes(stored(job.name));
    std::error_code error;
    if (fs::exists(path, error)) {  // an existing shard is complete, because shards are written
                                    // atomically
      ++report_.num_shards_resumed;
      HEDDLE_RETURN_IF_ERROR(advance(shard_bytes));
    } else {
      std::vector<OwnedTensor> tensors;
      for (const Job& job : shards_[index]) {
        append(job, tensors);
        HEDDLE_RETURN_IF_ERROR(advance(num_bytes(stored(job.name))));
      }
      std::vector<NamedTensor> views;
      for (const OwnedTensor& tensor : tensors) views.push_back(tensor.named);
      HEDDLE_RETURN_IF_ERROR(write_safetensors(path, views, {{"format", "pt"}}));
    }
    HEDDLE_ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::open(path));
    for (const TensorEntry& entry : file.tensors()) {
      shard_of_[entry.name] = shard_name(index, shards_.size());
      report_.output_bytes += entry.end - entry.begin;
    }
    return ok_status();
  }

  void append(const Job& job, std::vector<OwnedTensor>& tensors) {
    const StoredWeight weight = stored(job.name);
    if (!job.quantised) {
      std::shared_ptr<std::vector<std::byte>> memory;
      const void* data = weight.data;
      if (data == nullptr) {
        memory = std::make_shared<std::vector<std::byte>>(static_cast<size_t>(num_bytes(weight)));
        source_.weights->read(weight, 0, weight.shape.num_elements(), *weight.dtype,
                              memory->data());
        data = memory->data();
      }
      const TensorView view(data, *weight.dtype, weight.shape);
      tensors.push_back({.named = {job.name, view}, .memory = std::move(memory)});
      return;
    }
    const int64_t N = weight.shape[0];
    const int64_t K = weight.shape[1];
    std::vector<float> values(static_cast<size_t>(N * K));
    source_.weights->read(weight, 0, N * K, DType::kF32, values.data());
    const std::string module = module_of_weight(job.name);
    std::vector<OwnedTensor> made;
    switch (options_.format) {
      case QuantisedFormat::kAwq:
        made = awq_tensors(module, values.data(), N, K, options_.group_size);
        break;
      case QuantisedFormat::kFp8Block:
        made = fp8_tensors(module, values.data(), N, K);
        break;
      case QuantisedFormat::kInt8:
        made = int8_tensors(module, values.data(), N, K);
        break;
    }
    std::move(made.begin(), made.end(), std::back_inserter(tensors));
  }

  Status advance(int64_t bytes) {
    done_bytes_ += bytes;
    return options_.progress ? options_.progress(done_bytes_, report_.source_bytes) : ok_status();
  }

  Status write_config() {
    config_["quantization_config"] = quantization_json(options_, plain_modules_);
    return write_text(folder_ / "config.json", config_.dump(1) + "\n");
  }

  Status copy_other_files() const {
    std::error_code error;
    for (const auto& [name, bytes] : source_.files) {
      HEDDLE_RETURN_IF_ERROR(write_text(folder_ / name, bytes));
    }
    if (!fs::is_directory(options_.source, error)) return ok_status();
    return copy_beside_weights(options_.source, folder_);
  }

  const QuantiseOptions& options_;
  QuantiseSource source_;
  ordered_json config_;
  fs::path output_;
  fs::path folder_;
  std::vector<std::vector<Job>> shards_;
  std::vector<std::string> plain_modules_;
  std::map<std::string, std::string> shard_of_;
  QuantiseReport report_;
  int64_t done_bytes_ = 0;
};

}  // namespace

Result<QuantiseReport> quantise_checkpoint(const QuantiseOptions& options) {
  HEDDLE_RETURN_IF_ERROR(check_safetensors_folder(options.source, "heddle quantize"));
  QuantiseSource source;
  HEDDLE_ASSIGN_OR_RETURN(source.config,
                          read_text_file(options.source / "config.json", kMaxConfigTextBytes));
  HEDDLE_ASSIGN_OR_RETURN(CheckpointFiles files, CheckpointFiles::open(options.source));
  source.weights = std::make_unique<CheckpointFiles>(std::move(files));
  return quantise_checkpoint(options, std::move(source));
}

Result<QuantiseReport> quantise_checkpoint(const QuantiseOptions& options, QuantiseSource source) {
  HEDDLE_ASSIGN_OR_RETURN(fs::path output, check_output(options.output));
  if (options.format == QuantisedFormat::kAwq && options.group_size != 32 &&
      options.group_size != 64 && options.group_size != 128) {
    return invalid_argument(
        fmt::format("group size {} is not served; use 32, 64 or 128", options.group_size));
  }
  const fs::path config_path = options.source / "config.json";
  const Result<std::string> strict = strict_json(source.config);
  if (!strict.ok()) return strict.status().with_context(config_path.string());
  ordered_json config = ordered_json::parse(*strict, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) {
    return data_loss(fmt::format("{} is not a JSON object", config_path.string()));
  }
  if (config.contains("quantization_config") && !config["quantization_config"].is_null()) {
    return invalid_argument(
        fmt::format("{} is quantised already; quantise the original", options.source.string()));
  }
  for (const std::string& note : source.weights->notes()) log_warning(note);
  for (const std::string_view name : source.weights->names()) {
    const StoredWeight weight = *source.weights->find({.name = name, .shape = {}});
    if (weight.dtype) continue;
    return unimplemented(
        fmt::format("{} is {}, which cannot be copied", readable(name), weight.stored_dtype));
  }
  return Quantiser(options, std::move(output), std::move(source), std::move(config)).run();
}

}  // namespace heddle::checkpoint
