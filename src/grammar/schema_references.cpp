// SPDX-License-Identifier: Apache-2.0
#include "grammar/schema_references.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace heddle::grammar {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<std::string_view, 3> kReferences = {"$ref", "$dynamicRef", "$recursiveRef"};

// Whose values are documents.
bool holds_values(std::string_view keyword) {
  return keyword == "const" || keyword == "enum" || keyword == "default" || keyword == "example" ||
         keyword == "examples";
}

bool maps_names_to_schemas(std::string_view keyword) {
  return keyword == "properties" || keyword == "$defs" || keyword == "definitions" ||
         keyword == "patternProperties" || keyword == "dependentSchemas" ||
         keyword == "dependencies";
}

const std::string* text_of(const Json& schema, std::string_view keyword) {
  const auto found = schema.find(keyword);
  return found == schema.end() ? nullptr : found->get_ptr<const std::string*>();
}

// ---- URIs, as RFC 3986 (5.2) resolves them.

struct Uri {
  std::optional<std::string> scheme;
  std::optional<std::string> authority;
  std::string path;
  std::optional<std::string> query;
};

Uri parse_uri(std::string_view text) {
  Uri uri;
  const size_t colon = text.find_first_of(":/?");
  const auto is_scheme_letter = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '+' || c == '-' || c == '.';
  };
  if (colon != std::string_view::npos && colon > 0 && text[colon] == ':' &&
      std::ranges::all_of(text.substr(0, colon), is_scheme_letter)) {
    uri.scheme = text.substr(0, colon);
    text.remove_prefix(colon + 1);
  }
  if (text.starts_with("//")) {
    const size_t end = std::min(text.find_first_of("/?", 2), text.size());
    uri.authority = text.substr(2, end - 2);
    text.remove_prefix(end);
  }
  const size_t query = text.find('?');
  uri.path = text.substr(0, query);
  if (query != std::string_view::npos) uri.query = text.substr(query + 1);
  return uri;
}

std::string without_dots(std::string_view path) {
  std::vector<std::string_view> steps;
  const bool is_absolute = path.starts_with('/');
  size_t begin = is_absolute ? 1 : 0;
  while (true) {
    const size_t end = path.find('/', begin);
    const bool is_last = end == std::string_view::npos;
    const std::string_view step = path.substr(begin, is_last ? end : end - begin);
    if (step == "..") {
      if (!steps.empty()) steps.pop_back();
    } else if (step != ".") {
      steps.push_back(step);
    }
    if (is_last) {
      if (step == "." || step == "..") steps.emplace_back();
      break;
    }
    begin = end + 1;
  }
  return fmt::format("{}{}", is_absolute ? "/" : "", fmt::join(steps, "/"));
}

// The absolute form of a reference without a fragment.
std::string resolve_uri(const std::string& base, std::string_view reference) {
  if (reference.empty()) return base;
  Uri uri = parse_uri(reference);
  const Uri from = parse_uri(base);
  if (!uri.scheme) {
    uri.scheme = from.scheme;
    if (!uri.authority) {
      uri.authority = from.authority;
      if (uri.path.empty()) {
        uri.path = from.path;
        if (!uri.query) uri.query = from.query;
      } else if (!uri.path.starts_with('/')) {
        const size_t slash = from.path.rfind('/');
        std::string folder = slash == std::string::npos ? "" : from.path.substr(0, slash + 1);
        if (folder.empty() && from.authority) folder = "/";
        uri.path = folder + uri.path;
      }
    }
  }
  return fmt::format("{}{}{}{}", uri.scheme ? *uri.scheme + ":" : "",
                     uri.authority ? "//" + *uri.authority : "", without_dots(uri.path),
                     uri.query ? "?" + *uri.query : "");
}

struct Reference {
  std::string_view uri;
  std::string_view fragment;  // without #
};

Reference split(std::string_view reference) {
  const size_t hash = std::min(reference.find('#'), reference.size());
  return {.uri = reference.substr(0, hash),
          .fragment = reference.substr(std::min(hash + 1, reference.size()))};
}

// A step of a JSON pointer in a URI fragment.
std::string fragment_step(std::string_view step) {
  std::string text = escaped_step(step);
  for (size_t at = text.find('%'); at != std::string::npos; at = text.find('%', at + 1)) {
    text.insert(at + 1, "25");
  }
  return text;
}

std::optional<size_t> list_index(std::string_view text) {
  size_t index = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), index);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return index;
}

// Whether there are other references than pointers from the root, or an "$id" that changes what
// these mean.
bool has_names(const Json& part) {
  if (part.is_array()) return std::ranges::any_of(part, has_names);
  if (!part.is_object()) return false;
  return std::ranges::any_of(part.items(), [](const auto& item) {
    if (!item.value().is_string()) return has_names(item.value());
    const auto& text = item.value().template get_ref<const std::string&>();
    if (item.key() == "$ref") return text != "#" && !text.starts_with("#/");
    return item.key() == "$dynamicRef" || item.key() == "$recursiveRef" || item.key() == "$id";
  });
}

class ReferencePointers {
 public:
  explicit ReferencePointers(Json& root) : root_(root) {}

  void write() {
    add_names(root_, "", "");
    for (const Found& found : references_) rewrite(found);
    finish(root_);
  }

 private:
  // Where names lead.
  struct Target {
    std::string pointer;
    bool is_single = true;  // no other one has the name
  };

  using Names = std::map<std::pair<std::string, std::string>, Target, std::less<>>;  // URI, anchor

  struct Found {
    Json* reference;
    std::string_view keyword;
    std::string base;  // the URI of the "$id" around it
  };

  void add_name(const std::string& uri, std::string_view anchor, const std::string& pointer) {
    const auto [entry, is_new] =
        names_.try_emplace({uri, std::string(anchor)}, Target{.pointer = pointer});
    if (!is_new && entry->second.pointer != pointer) entry->second.is_single = false;
  }

  void add_names(Json& part, std::string base, const std::string& pointer) {
    if (part.is_array()) {
      for (size_t i = 0; i < part.size(); ++i) {
        add_names(part[i], base, fmt::format("{}/{}", pointer, i));
      }
      return;
    }
    if (!part.is_object()) return;
    if (const std::string* const id = text_of(part, "$id")) {
      const Reference name = split(*id);
      base = resolve_uri(base, name.uri);
      if (!name.uri.empty()) add_name(base, "", pointer);
      if (!name.fragment.empty()) add_name(base, name.fragment, pointer);
    }
    if (pointer.empty()) {
      add_name("", "", pointer);
      root_uri_ = base;
    }
    if (const std::string* const anchor = text_of(part, "$anchor")) {
      add_name(base, *anchor, pointer);
    }
    if (const std::string* const anchor = text_of(part, "$dynamicAnchor")) {
      add_name(base, *anchor, pointer);
      dynamic_anchors_[*anchor].push_back(pointer);
    }
    if (part.value("$recursiveAnchor", Json()) == true) {
      recursive_anchors_.push_back(pointer);
    }
    for (const std::string_view keyword : kReferences) {
      const auto found = part.find(keyword);
      if (found == part.end() || !found->is_string()) continue;
      references_.push_back({.reference = &*found, .keyword = keyword, .base = base});
    }
    for (auto it = part.begin(); it != part.end(); ++it) {
      if (holds_values(it.key())) continue;
      const std::string below = fmt::format("{}/{}", pointer, fragment_step(it.key()));
      if (maps_names_to_schemas(it.key()) && it.value().is_object()) {
        for (auto inner = it.value().begin(); inner != it.value().end(); ++inner) {
          add_names(inner.value(), base, fmt::format("{}/{}", below, fragment_step(inner.key())));
        }
      } else {
        add_names(it.value(), base, below);
      }
    }
  }

  [[nodiscard]] const Target* find(const std::string& uri, std::string_view anchor) const {
    const auto found = names_.find(std::pair(uri, std::string(anchor)));
    return found == names_.end() || !found->second.is_single ? nullptr : &found->second;
  }

  // As a pointer from the root; nothing: it leads nowhere.
  [[nodiscard]] std::optional<std::string> pointer_of(const Found& found) const {
    const Reference name = split(found.reference->get_ref<const std::string&>());
    const std::string uri = resolve_uri(found.base, name.uri);
    const Target* const resource = uri == root_uri_ ? find("", "") : find(uri, "");
    if (name.fragment.empty() || name.fragment.starts_with('/')) {
      if (resource == nullptr) return std::nullopt;
      return "#" + resource->pointer + std::string(name.fragment);
    }
    const Target* const target = find(uri, name.fragment);
    if (target == nullptr) return std::nullopt;
    return "#" + target->pointer;
  }

  void rewrite(const Found& found) {
    std::optional<std::string> pointer = pointer_of(found);
    if (pointer && leads_elsewhere(found, pointer->substr(1))) return;
    auto& reference = found.reference->get_ref<std::string&>();
    if (pointer) {
      reference = *std::move(pointer);
    } else if (reference == "#" || reference.starts_with("#/")) {
      reference.insert(0, found.base);  // two parts have this URI
    }
    if (found.keyword != "$ref") dynamic_references_.push_back(found.reference);
  }

  // Whether the way to a reference may decide where it leads.
  [[nodiscard]] bool leads_elsewhere(const Found& found, std::string_view target) const {
    const auto is_one_of_several = [&](const std::vector<std::string>& pointers) {
      return pointers.size() > 1 && std::ranges::find(pointers, target) != pointers.end();
    };
    if (found.keyword == "$recursiveRef") return is_one_of_several(recursive_anchors_);
    if (found.keyword != "$dynamicRef") return false;
    const std::string_view anchor = split(found.reference->get_ref<const std::string&>()).fragment;
    const auto same = dynamic_anchors_.find(anchor);
    return same != dynamic_anchors_.end() && is_one_of_several(same->second);
  }

  // Removes each "$id", and calls the references that lead to one place only "$ref". Parts move by
  // that, inner ones first.
  void finish(Json& part) {
    if (part.is_array()) {
      for (Json& item : part) finish(item);
      return;
    }
    if (!part.is_object()) return;
    for (auto it = part.begin(); it != part.end(); ++it) {
      if (holds_values(it.key())) continue;
      if (maps_names_to_schemas(it.key()) && it.value().is_object()) {
        for (Json& inner : it.value()) finish(inner);
      } else {
        finish(it.value());
      }
    }
    std::vector<Json> plain;
    std::vector<std::string> removed;
    for (const std::string_view keyword : kReferences) {
      const auto found = part.find(keyword);
      if (found == part.end() ||
          std::ranges::find(dynamic_references_, &*found) == dynamic_references_.end()) {
        continue;
      }
      plain.push_back(*found);
      removed.emplace_back(keyword);
    }
    for (const std::string& keyword : removed) part.erase(keyword);
    for (Json& reference : plain) {
      if (!part.contains("$ref")) {
        part["$ref"] = std::move(reference);
      } else if (Json& all = part["allOf"]; all.is_null() || all.is_array()) {
        all.push_back({{"$ref", std::move(reference)}});
      }
    }
    if (text_of(part, "$id") != nullptr) part.erase("$id");
  }

  Json& root_;
  std::string root_uri_;
  Names names_;
  std::map<std::string, std::vector<std::string>, std::less<>> dynamic_anchors_;
  std::vector<std::string> recursive_anchors_;
  std::vector<Found> references_;
  std::vector<const Json*> dynamic_references_;
};

}  // namespace

std::string escaped_step(std::string_view step) {
  std::string text;
  for (const char letter : step) {
    if (letter == '~') {
      text += "~0";
    } else if (letter == '/') {
      text += "~1";
    } else {
      text += letter;
    }
  }
  return text;
}

std::optional<std::string> pointer_step(std::string_view text) {
  std::string bytes;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      bytes += text[i];
      continue;
    }
    unsigned value = 0;
    const std::string_view digits = text.substr(i + 1, 2);
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    if (error != std::errc() || digits.size() < 2 || end != digits.data() + 2) return std::nullopt;
    bytes += static_cast<char>(value);
    i += 2;
  }
  std::string step;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != '~') {
      step += bytes[i];
    } else if (i + 1 < bytes.size() && (bytes[i + 1] == '0' || bytes[i + 1] == '1')) {
      step += bytes[++i] == '0' ? '~' : '/';
    } else {
      return std::nullopt;
    }
  }
  return step;
}

const Json* part_at(const Json& root, std::string_view reference, std::string* path) {
  if (!reference.starts_with('#')) return nullptr;
  const Json* at = &root;
  for (std::string_view rest = reference.substr(1); !rest.empty();) {
    if (!rest.starts_with('/')) return nullptr;
    const size_t end = std::min(rest.find('/', 1), rest.size());
    const std::optional<std::string> step = pointer_step(rest.substr(1, end - 1));
    rest.remove_prefix(end);
    const Json* next = nullptr;
    if (step && at->is_object()) {
      if (const auto found = at->find(*step); found != at->end()) next = &*found;
    } else if (step && at->is_array()) {
      if (const auto index = list_index(*step); index && *index < at->size()) next = &(*at)[*index];
    }
    if (next == nullptr) return nullptr;
    at = next;
    if (path != nullptr) *path += "/" + escaped_step(*step);
  }
  return at;
}

std::optional<Json> point_references(const Json& schema) {
  if (!has_names(schema)) return std::nullopt;
  Json pointed = schema;
  ReferencePointers(pointed).write();
  return pointed;
}

}  // namespace heddle::grammar
