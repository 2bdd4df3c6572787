// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/config_file.h"

#include <algorithm>
#include <cctype>
#include <exception>
#include <filesystem>
#include <iterator>
#include <optional>
#include <set>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <yaml-cpp/yaml.h>

#include "tools/cli/options.h"

namespace heddle::tools {
namespace {

constexpr const char* kConfigOption = "--config";

using Json = nlohmann::ordered_json;

Json json_of(const YAML::Node& node) {
  Json json;
  if (node.IsMap()) {
    json = Json::object();
    for (const auto& entry : node) json[entry.first.Scalar()] = json_of(entry.second);
  } else if (node.IsSequence()) {
    json = Json::array();
    for (const YAML::Node& item : node) json.push_back(json_of(item));
  } else if (node.IsScalar()) {
    constexpr const char* kQuoted = "!";  // YAML's tag of a quoted text
    if (node.Tag() != kQuoted) json = Json::parse(node.Scalar(), nullptr, false);
    if (json.is_null() || !json.is_primitive()) json = node.Scalar();
  }
  return json;
}

Result<std::string> value_of(const YAML::Node& node) {
  if (node.IsScalar()) return node.Scalar();
  if (node.IsMap()) return json_of(node).dump();
  if (!node.IsSequence()) {
    return invalid_argument(
        "has no value; it must be a text, a number, true, false, a list or a map");
  }
  std::string joined;
  for (const YAML::Node& item : node) {
    if (!item.IsScalar()) return invalid_argument("must be a list of texts or numbers");
    joined += (joined.empty() ? "" : ",") + item.Scalar();
  }
  return joined;
}

// Adds the entries of a map, and, recursively, those of `tuning`.
Status add_settings(const std::string& path, const YAML::Node& map, bool tuning,
                    std::vector<FileSetting>& settings) {
  constexpr const char* kTuningKey = "tuning";
  for (const auto& entry : map) {
    FileSetting setting{.name = entry.first.Scalar(),
                        .value = {},
                        .line = entry.first.Mark().line + 1,
                        .tuning = tuning};
    std::ranges::replace(setting.name, '_', '-');
    if (setting.name.starts_with('-')) {
      return invalid_argument(
          fmt::format("{}, line {}: {}: options stand in a file without dashes before their name",
                      path, setting.line, setting.name));
    }
    if (setting.name == kTuningKey && !tuning) {
      if (entry.second.IsNull()) continue;
      if (!entry.second.IsMap()) {
        return invalid_argument(
            fmt::format("{}, line {}: tuning has to hold settings by name, as `overlap: false`",
                        path, setting.line));
      }
      HEDDLE_RETURN_IF_ERROR(add_settings(path, entry.second, /*tuning=*/true, settings));
      continue;
    }
    Result<std::string> value = value_of(entry.second);
    if (!value.ok()) {
      return invalid_argument(fmt::format("{}, line {}: {} {}", path, setting.line, setting.name,
                                          value.status().message()));
    }
    setting.value = *std::move(value);
    settings.push_back(std::move(setting));
  }
  return ok_status();
}

// The options that the command line gives.
std::set<const CLI::Option*> given_options(const CLI::App& app,
                                           const std::vector<std::string>& arguments) {
  std::set<const CLI::Option*> given;
  for (const std::string& argument : arguments) {
    if (argument == "--") break;
    if (!argument.starts_with('-')) continue;
    // A short option may include its value, as in "-p8000".
    const bool is_short = !argument.starts_with("--");
    const std::string name =
        argument.substr(0, is_short ? 2 : std::min(argument.find('='), argument.size()));
    if (const CLI::Option* option = app.get_option_no_throw(name)) given.insert(option);
  }
  return given;
}

// The value of --config, which stays in the arguments.
std::optional<std::string> config_path(const std::vector<std::string>& arguments) {
  const auto end = std::ranges::find(arguments, "--");
  for (auto argument = arguments.begin(); argument != end; ++argument) {
    if (*argument == kConfigOption && std::next(argument) != end) return *std::next(argument);
    if (argument->starts_with(fmt::format("{}=", kConfigOption))) {
      return argument->substr(argument->find('=') + 1);
    }
  }
  return std::nullopt;
}

}  // namespace

Result<std::vector<FileSetting>> read_config_file(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    return not_found(fmt::format("{} {}: there is no such file", kConfigOption, path));
  }
  std::vector<FileSetting> settings;
  try {
    const YAML::Node root = YAML::LoadFile(path);
    if (root.IsNull()) return settings;
    if (!root.IsMap()) {
      return invalid_argument(
          fmt::format("{}: has to hold options by name, as `port: 8000`", path));
    }
    HEDDLE_RETURN_IF_ERROR(add_settings(path, root, /*tuning=*/false, settings));
  } catch (const YAML::Exception& failure) {
    return invalid_argument(fmt::format("{}, line {}: neither YAML nor JSON: {}", path,
                                        failure.mark.line + 1, failure.msg));
  } catch (const std::exception& failure) {
    return invalid_argument(fmt::format("{}: cannot be read: {}", path, failure.what()));
  }
  return settings;
}

Result<ArgumentsWithFile> with_config_file(const CLI::App& root,
                                           std::vector<std::string> arguments) {
  const CLI::App* app = nullptr;
  for (const CLI::App* command : root.get_subcommands([](const CLI::App*) { return true; })) {
    if (!arguments.empty() && command->check_name(arguments[0])) app = command;
  }
  if (app == nullptr || app->get_option_no_throw(kConfigOption) == nullptr) {
    return ArgumentsWithFile{.words = std::move(arguments)};
  }
  const std::set<const CLI::Option*> given = given_options(*app, arguments);
  const std::optional<std::string> path = config_path(arguments);
  if (!path) return ArgumentsWithFile{.words = std::move(arguments)};
  ArgumentsWithFile result{.words = {}, .path = *path};
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<FileSetting> settings, read_config_file(*path));
  auto place = std::next(arguments.begin());
  for (const FileSetting& setting : settings) {
    if ("--" + setting.name == kConfigOption) {
      return invalid_argument(fmt::format("{}: a file cannot name another one", *path));
    }
    const CLI::Option* option = app->get_option_no_throw("--" + setting.name);
    if (option != nullptr && option == app->get_help_ptr()) {
      return invalid_argument(
          fmt::format("{}: {} stands on a command line; leave it out", *path, setting.name));
    }
    if (option != nullptr && setting.tuning && option->get_group() != Options::kTuning) {
      return invalid_argument(fmt::format(
          "{}, line {}: {} is an option and no key of tuning; write it beside `tuning:`", *path,
          setting.line, setting.name));
    }
    if (option != nullptr && given.contains(option)) continue;
    place = std::next(arguments.insert(place, fmt::format("--{}={}", setting.name, setting.value)));
    result.from_file.push_back(setting);
  }
  result.words = std::move(arguments);
  return result;
}

std::string place_in_file(const ArgumentsWithFile& arguments, const std::string& message) {
  // First position in the message at which an option of the file is named.
  size_t first = std::string::npos;
  int line = 0;
  for (const FileSetting& setting : arguments.from_file) {
    const std::string name = "--" + setting.name;
    const size_t at = message.find(name);
    const char behind = at == std::string::npos ? '-' : message[at + name.size()];
    if (behind == '-' || std::isalnum(static_cast<unsigned char>(behind)) != 0) continue;
    if (at >= first) continue;
    first = at;
    line = setting.line;
  }
  return line == 0 ? "" : fmt::format("{}, line {}: ", arguments.path, line);
}

}  // namespace heddle::tools
