// SPDX-License-Identifier: Apache-2.0
// heddle inspect: shows what a checkpoint contains, what it needs, and how it will be computed.
#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint_files.h"
#include "checkpoint/gguf_model.h"
#include "checkpoint/stored_tensors.h"
#include "core/log.h"
#include "device/available_memory.h"
#include "graph/program.h"
#include "models/registry.h"
#include "runner/load/cache_plan.h"
#include "runner/load/number_formats.h"
#include "runner/program/forward_pass.h"
#include "runner/program/kv_storage.h"
#include "runner/program/model_constants.h"
#include "runner/step/pools.h"
#include "tokenizer/tokenizer.h"
#include "tools/cli/options_engine.h"
#include "tools/cli/output_file.h"
#include "tools/cli/subcommand.h"
#include "tools/cli/table.h"
#include "tools/cli/terminal.h"
#include "tools/rank_report.h"

namespace heddle::tools {

namespace {

struct InspectOptions {
  std::string model_dir;
  LoadFormat load_format = LoadFormat::kAuto;
  RunDtype dtype = RunDtype::kAuto;
  KvCacheDtype kv_cache_dtype = KvCacheDtype::kAuto;
  std::optional<std::string> tokenize;
  bool tensors = false;
  bool graph = false;
  int64_t step_tokens = 512;
  std::optional<int64_t> ranks;
  bool exact = false;
  bool json = false;
};

std::string mib(int64_t bytes) { return fmt::format("{:.2f} MiB", mebibytes(bytes)); }

int64_t model_parameters(const models::Model& model) {
  int64_t total = 0;
  for (const auto& spec : model.weight_specs()) total += spec.shape.num_elements();
  return total;
}

struct WeightSize {
  int64_t bytes = 0;
  std::string form;  // format of the weights, as "as bfloat16"
};

// Size of the weights in a GGUF file: blocks as packed rows, other numbers in `dtype`.
Result<WeightSize> gguf_weight_size(const std::filesystem::path& path, DType dtype) {
  HEDDLE_ASSIGN_OR_RETURN(const auto source, models::open_weights(path));
  std::map<std::string, int64_t> forms;
  for (const std::string_view name : source->names()) {
    const auto weight = source->find({.name = name, .shape = {}});
    const int64_t num_elements = weight->shape.num_elements();
    if (weight->blocks) {
      const int64_t K = weight->blocks->K;
      const quant::RowFormat format = *quant::packed_format(weight->blocks->type, K);
      forms[format.to_string()] += num_elements / K * format.row_bytes();
    } else {
      forms[std::string(to_string(dtype))] += bytes_of(dtype, num_elements);
    }
  }
  WeightSize size;
  std::vector<std::string> parts;
  for (const auto& [form, bytes] : forms) {
    size.bytes += bytes;
    parts.push_back(forms.size() > 1 ? fmt::format("{} as {}", mib(bytes), form) : "as " + form);
  }
  size.form = fmt::format("{}{}", parts.size() > 1 ? "on the CPU: " : "", fmt::join(parts, "; "));
  return size;
}

// Size of the weights without loading them: every parameter in `dtype`, or, for a quantised
// checkpoint, what its files store, because only they give the format of each tensor.
Result<WeightSize> weight_size(const InspectOptions& options, const checkpoint::ModelConfig& config,
                               const models::Model& model, DType dtype) {
  WeightSize plain{bytes_of(dtype, model_parameters(model)),
                   fmt::format("as {}", to_string(dtype))};
  if (options.load_format == LoadFormat::kDummy) {
    return WeightSize{plain.bytes, plain.form + ", made up"};
  }
  HEDDLE_ASSIGN_OR_RETURN(const auto gguf, checkpoint::find_gguf(options.model_dir));
  if (gguf) return gguf_weight_size(*gguf, dtype);
  const auto files = checkpoint::CheckpointFiles::open(options.model_dir);
  if (!files.ok() && options.load_format == LoadFormat::kSafetensors) return files.status();
  if (!config.quantization) return plain;
  if (!files.ok()) {
    return WeightSize{plain.bytes, plain.form + ", unquantised: no files to count"};
  }
  WeightSize stored{.form = "as stored, quantised"};
  const std::vector<std::string> ignored = model.ignored_prefixes();
  for (const std::string_view name : files->names()) {
    const bool is_read = std::ranges::none_of(
        ignored, [&](const std::string& prefix) { return name.starts_with(prefix); });
    const checkpoint::TensorEntry& entry = *files->entry(name);
    if (is_read) stored.bytes += entry.end - entry.begin;
  }
  return stored;
}

// The memory pools that `heddle serve` would plan on this machine without options. The memory for a
// step is not known yet and not included.
Result<runner::PlannedPools> plan_memory(const checkpoint::ModelConfig& config,
                                         const models::CacheNeeds& needs, DType kv_dtype,
                                         int64_t weight_bytes) {
  return runner::plan_pools({}, config, needs, kv_dtype,
                            {.available_bytes = std::max<int64_t>(
                                 0, device::available_host_memory_bytes() - weight_bytes),
                             .weights_bytes = weight_bytes});
}

int64_t pool_bytes(const cache::PoolSizes& sizes) {
  const int64_t others = sizes.shared_bytes > 0 ? sizes.shared_bytes
                                                : sizes.kv_pool_bytes() + sizes.state_pool_bytes();
  return others + sizes.window_pool_bytes();
}

std::string describe_pools(const Result<runner::PlannedPools>& pools) {
  if (!pools.ok()) return pools.status().message();
  const cache::PoolSizes& sizes = pools->plan.sizes;
  std::string text = fmt::format("on this machine {} for {} tokens in pages of {}",
                                 mib(pool_bytes(sizes)), sizes.kv_tokens(), sizes.page_size);
  if (!sizes.windows.empty()) {
    text += fmt::format(" and {} tokens of windows", sizes.window_tokens());
  }
  if (sizes.has_states()) {
    text +=
        fmt::format("{} {} states", sizes.shared_bytes > 0 ? " or" : " and", sizes.num_state_slots);
  }
  return text + fmt::format(", at most {} requests at once", sizes.max_sequences);
}

nlohmann::ordered_json pools_to_json(const Result<runner::PlannedPools>& pools) {
  if (!pools.ok()) return {{"error", pools.status().message()}};
  const cache::PoolSizes& sizes = pools->plan.sizes;
  return {{"pool_bytes", pool_bytes(sizes)},
          {"shared", sizes.shared_bytes > 0},
          {"kv_tokens", sizes.kv_tokens()},
          {"window_tokens", sizes.window_tokens()},
          {"page_size", sizes.page_size},
          {"state_slots", sizes.num_state_slots},
          {"max_running_requests", sizes.max_sequences},
          {"context_length", pools->plan.context_length}};
}

Status print_summary(const InspectOptions& options) {
  HEDDLE_ASSIGN_OR_RETURN(const auto config, models::load_config(options.model_dir));
  for (const std::string& note : config.notes) log_warning(note);
  const auto model = models::create_model(config);
  const models::CacheNeeds needs = model->cache_needs();
  const int64_t parameters = model_parameters(*model);
  const DType dtype = runner::dtype_of(options.dtype).value_or(config.dtype.value_or(DType::kBf16));
  const runner::KvRequest kv_request{.asked = runner::dtype_of(options.kv_cache_dtype),
                                     .float32_run = options.dtype == RunDtype::kFloat32};
  const DType kv_dtype = runner::choose_kv_dtype(kv_request, config).value_or(dtype);
  const int64_t token_bytes = cache::bytes_per_page(runner::kv_layouts(needs, 16, kv_dtype)) / 16;
  const int64_t state_bytes = cache::bytes_per_slot(runner::state_layouts(needs));
  HEDDLE_ASSIGN_OR_RETURN(const WeightSize weights, weight_size(options, config, *model, dtype));
  const auto pools = plan_memory(config, needs, kv_dtype, weights.bytes);
  if (options.json) {
    const nlohmann::ordered_json report = {{"architecture", config.architecture},
                                           {"parameters", parameters},
                                           {"layers", config.num_layers},
                                           {"attention_layers", needs.num_kv_layers()},
                                           {"linear_attention_layers", needs.num_state_layers()},
                                           {"hidden_size", config.hidden_size},
                                           {"vocab_size", config.vocab_size},
                                           {"context_length", config.max_position_embeddings},
                                           {"dtype", to_string(dtype)},
                                           {"weight_bytes", weights.bytes},
                                           {"weight_form", weights.form},
                                           {"kv_cache_dtype", to_string(kv_dtype)},
                                           {"kv_bytes_per_token", token_bytes},
                                           {"state_bytes_per_sequence", state_bytes},
                                           {"memory_plan", pools_to_json(pools)}};
    fmt::print("{}\n", report.dump(2));
    return {};
  }
  fmt::print("{}\n", config.architecture);
  Table table({"what", "value"});
  table.add({"parameters", fmt::format("{}", parameters)});
  table.add({"layers", fmt::format("{} ({} attention, {} recurrent)", config.num_layers,
                                   needs.num_kv_layers(), needs.num_state_layers())});
  table.add({"hidden size", fmt::format("{}", config.hidden_size)});
  if (config.moe) {
    table.add(
        {"experts", fmt::format("{} of {} per token, {} wide", config.moe->num_experts_per_token,
                                config.moe->num_experts, config.moe->intermediate_size)});
  }
  table.add({"vocabulary", fmt::format("{}", config.vocab_size)});
  table.add({"context", fmt::format("{} tokens", config.max_position_embeddings)});
  table.add({"weights", mib(weights.bytes) + " " + weights.form});
  table.add(
      {"KV cache", fmt::format("{} bytes per token as {}", token_bytes, to_string(kv_dtype))});
  table.add({"recurrent state", mib(state_bytes) + " per sequence"});
  table.add({"memory plan", describe_pools(pools)});
  fmt::print("{}", table.to_string());
  return {};
}

Status print_tensors(const InspectOptions& options) {
  HEDDLE_ASSIGN_OR_RETURN(const auto files, checkpoint::list_stored_tensors(options.model_dir));
  for (const std::string& note : files.notes) log_warning(note);
  if (options.json) {
    auto report = nlohmann::ordered_json::array();
    for (const checkpoint::ListedTensor& tensor : files.tensors) {
      const auto dims = tensor.shape.dims();
      report.push_back({{"name", tensor.name},
                        {"dtype", tensor.stored_dtype},
                        {"shape", std::vector<int64_t>(dims.begin(), dims.end())}});
    }
    fmt::print("{}\n", report.dump(2));
    return {};
  }
  Table table({"tensor", "dtype", "shape"});
  for (const checkpoint::ListedTensor& tensor : files.tensors) {
    table.add({tensor.name, tensor.stored_dtype, tensor.shape.to_string()});
  }
  fmt::print("{}", table.to_string());
  return {};
}

Status print_graph(const InspectOptions& options) {
  HEDDLE_ASSIGN_OR_RETURN(
      const auto pass,
      runner::ForwardPass::create({.model_dir = options.model_dir,
                                   .dummy_weights = options.load_format == LoadFormat::kDummy,
                                   .dtype = runner::dtype_of(options.dtype),
                                   .kv_dtype = runner::dtype_of(options.kv_cache_dtype),
                                   .max_step_tokens = options.step_tokens,
                                   .on_load_progress = load_progress_bar()}));
  fmt::print("{}", graph::dump(pass->program()));
  return {};
}

// The source of the weights: the model's files, or DummyWeights if the options select it or there
// are no files.
Result<std::unique_ptr<const checkpoint::WeightSource>> weights_to_share(
    const InspectOptions& options) {
  if (options.load_format != LoadFormat::kDummy) {
    auto files = runner::open_weights(options.model_dir, /*dummy_weights=*/false);
    const bool missing = !files.ok() && files.status().code() == StatusCode::kNotFound;
    if (!missing || options.load_format == LoadFormat::kSafetensors) return files;
    log_warning(files.status().message() + "; sizes are those of unquantised weights");
  }
  return runner::open_weights(options.model_dir, /*dummy_weights=*/true);
}

Status print_ranks(const InspectOptions& options) {
  HEDDLE_ASSIGN_OR_RETURN(const auto config, models::load_config(options.model_dir));
  for (const std::string& note : config.notes) log_warning(note);
  const auto model = models::create_model(config);
  HEDDLE_ASSIGN_OR_RETURN(const auto source, weights_to_share(options));
  std::optional<DType> dtype =
      options.exact ? std::optional(DType::kF32) : runner::dtype_of(options.dtype);
  if (!dtype && source->names().empty()) dtype = config.dtype.value_or(DType::kBf16);
  const auto report =
      report_on_ranks(*model, *source,
                      {.dtype = dtype,
                       .ignored_prefixes = model->ignored_prefixes(),
                       .quantization = config.quantization ? &*config.quantization : nullptr},
                      {.count = *options.ranks, .exact = options.exact});
  if (!report.ok()) {
    return report.status().with_context(
        fmt::format("--tp {} of {}", *options.ranks, options.model_dir));
  }
  fmt::print("{}", options.json ? to_json(*report).dump(2) + "\n" : to_text(*report));
  return {};
}

Status print_tokens(const InspectOptions& options) {
  HEDDLE_ASSIGN_OR_RETURN(const auto tokenizer, tokenizer::load_tokenizer(options.model_dir));
  HEDDLE_ASSIGN_OR_RETURN(const auto ids, tokenizer->encode(*options.tokenize, {}));
  if (options.json) {
    fmt::print("{}\n", nlohmann::json(ids).dump());
    return {};
  }
  Table table({"id", "token"});
  for (const TokenId id : ids) {
    table.add(
        {std::to_string(id), nlohmann::json(tokenizer->decode({&id, 1}, false))
                                 .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)});
  }
  fmt::print("{}{} tokens\n", table.to_string(), ids.size());
  return {};
}

int inspect(const InspectOptions& options) {
  Status status;
  if (options.tokenize) {
    status = print_tokens(options);
  } else if (options.graph) {
    status = print_graph(options);
  } else if (options.tensors) {
    status = print_tensors(options);
  } else if (options.ranks) {
    status = print_ranks(options);
  } else {
    status = print_summary(options);
  }
  return status.ok() ? 0 : report_failure(status);
}

std::function<int()> declare_inspect(Options& options) {
  auto settings = std::make_shared<InspectOptions>();
  options.examples(
      "heddle inspect models/heddle-tiny\n"
      "heddle inspect models/heddle-tiny --graph\n"
      "heddle inspect models/heddle-tiny --tokenize \"Tell me a story.\"\n"
      "heddle inspect models/heddle-tiny --tp 2\n"
      "heddle inspect FOLDER_WITH_ONLY_A_CONFIG\n"
      "\n"
      "The summary reads config.json, and of a quantised checkpoint how large its tensors are;\n"
      "--graph loads the weights. With --load-format dummy both make weights up, as `heddle "
      "serve`\n"
      "does.");
  options.model("MODEL_DIR", &settings->model_dir, "Folder with config.json, or a GGUF file");
  declare_load_format(
      options, settings->load_format,
      "Where weights come from; safetensors: the files must be there; dummy: no file "
      "is read, weights are made up, unquantised");
  declare_dtypes(options, settings->dtype, settings->kv_cache_dtype);
  options.flag("--tensors", &settings->tensors, "List the tensors of the files");
  options.flag("--graph", &settings->graph,
               "Print the compiled op graph: shapes, live ranges, offsets, segments");
  options.value("--step-tokens", &settings->step_tokens, ranges::kStepTokens,
                "Largest step the graph is planned for");
  options.value("--tokenize", &settings->tokenize, "Print the token ids of a text");
  options.value("--tp,--tp-size,--tensor-parallel-size", &settings->ranks, ranges::kRanks,
                "Print how so many ranks would share the weights: slices, bytes, legal numbers");
  options.flag("--exact", &settings->exact, "With --tp: as exact mode shares them, in float32");
  options.flag("--json", &settings->json, "Print as JSON; not the graph");
  options.excludes("--json", "--graph");
  options.excludes("--tokenize", "--graph");
  options.excludes("--tokenize", "--tensors");
  options.excludes("--graph", "--tensors");
  options.needs("--step-tokens", "--graph");
  for (const char* other : {"--tensors", "--graph", "--tokenize", "--kv-cache-dtype"}) {
    options.excludes("--tp", other);
  }
  options.needs("--exact", "--tp");
  options.excludes("--exact", "--dtype");
  options.excludes("--load-format", "--tensors");
  options.excludes("--load-format", "--tokenize");
  for (const char* number_format : {"--dtype", "--kv-cache-dtype"}) {
    options.excludes(number_format, "--tensors");
    options.excludes(number_format, "--tokenize");
  }
  return [settings] { return inspect(*settings); };
}

}  // namespace

const Subcommand kInspect = {"inspect", "Show a checkpoint: sizes, tensors, op graph, tokens.",
                             declare_inspect};

}  // namespace heddle::tools
