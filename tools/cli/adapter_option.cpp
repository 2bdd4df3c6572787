// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/adapter_option.h"

#include <algorithm>
#include <set>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "checkpoint/adapter_files.h"

namespace heddle::tools {

namespace {

namespace fs = std::filesystem;

// The first of these keys that has a text; empty if none has.
std::string first_text(const nlohmann::json& object, std::initializer_list<const char*> keys) {
  for (const char* const key : keys) {
    const auto found = object.find(key);
    if (found != object.end() && found->is_string()) return found->get<std::string>();
  }
  return {};
}

// Whether the whole text is a folder, even if its name contains '='.
bool is_adapter_folder(std::string_view text) {
  std::error_code ignored;
  return fs::is_directory(text, ignored);
}

}  // namespace

Result<AdapterArgument> parse_adapter(std::string_view text) {
  AdapterArgument adapter;
  if (text.starts_with('{')) {
    const auto object = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (object.is_object()) {
      adapter = {.name = first_text(object, {"name", "lora_name"}),
                 .folder = first_text(object, {"path", "lora_path"})};
    }
  } else if (const size_t equals = text.find('=');
             equals != std::string_view::npos && !is_adapter_folder(text)) {
    adapter = {.name = std::string(text.substr(0, equals)), .folder = text.substr(equals + 1)};
    if (adapter.name.empty()) adapter.folder.clear();
  } else {
    adapter.folder = text;
  }
  if (adapter.folder.empty()) {
    return invalid_argument(
        fmt::format("'{}' names no adapter; give NAME=FOLDER, FOLDER, or "
                    "{{\"name\": \"NAME\", \"path\": \"FOLDER\"}}",
                    text));
  }
  if (adapter.name.empty()) {
    const fs::path folder =
        adapter.folder.has_filename() ? adapter.folder : adapter.folder.parent_path();
    adapter.name = folder.filename().string();
  }
  return adapter;
}

void declare_adapter(Options& options, std::vector<std::string>& adapters) {
  options.parsed(
      "--lora", "",
      [&adapters](std::string_view text) -> Status {
        HEDDLE_RETURN_IF_ERROR(parse_adapter(text).status());
        adapters = {std::string(text)};
        return {};
      },
      "Folder of a LoRA adapter to add, or NAME=FOLDER; on the CPU");
}

Status apply_adapters(const std::vector<std::string>& adapters, EngineOptions& engine) {
  std::set<std::string> names;
  int64_t highest_rank = 0;
  for (const std::string& text : adapters) {
    HEDDLE_ASSIGN_OR_RETURN(const AdapterArgument adapter, parse_adapter(text));
    if (!names.insert(adapter.name).second) {
      return invalid_argument(
          fmt::format("two adapters are called {}; give one another name", adapter.name));
    }
    HEDDLE_ASSIGN_OR_RETURN(const auto files, checkpoint::AdapterFiles::open(adapter.folder));
    highest_rank = std::max(highest_rank, files.highest_rank());
  }
  engine.adapters.num_slots = static_cast<int32_t>(adapters.size());
  if (highest_rank > 0) engine.adapters.max_rank = static_cast<int32_t>(highest_rank);
  return {};
}

Result<std::vector<LoadedAdapter>> load_adapters(const std::vector<std::string>& adapters,
                                                 Engine& engine) {
  std::vector<LoadedAdapter> loaded;
  for (const std::string& text : adapters) {
    LoadedAdapter& one = loaded.emplace_back();
    HEDDLE_ASSIGN_OR_RETURN(one.argument, parse_adapter(text));
    HEDDLE_ASSIGN_OR_RETURN(one.adapter, engine.load_adapter(one.argument.folder));
  }
  return loaded;
}

}  // namespace heddle::tools
