// SPDX-License-Identifier: Apache-2.0
#include "grammar/schema_references.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "grammar/json_schema.h"

namespace heddle::grammar {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<std::string_view, 3> kReferences = {"$ref", "$dynamicRef", "$recursiveRef"};

// Keywords whose values are JSON documents, in which "$ref" is plain text.
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

// ---- URIs, resolved as in RFC 3986 (5.2).

// The parts of a URI, as views of its text.
struct Uri {
  std::optional<std::string_view> scheme;
  std::optional<std::string_view> authority;
  std::string_view path;
  std::optional<std::string_view> query;
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

// The absolute form of a reference that is not empty and has no fragment.
std::string resolve_uri(const Uri& from, std::string_view reference) {
  Uri uri = parse_uri(reference);
  std::string path(uri.path);
  if (!uri.scheme) {
    uri.scheme = from.scheme;
    if (!uri.authority) {
      uri.authority = from.authority;
      if (path.empty()) {
        path = from.path;
        if (!uri.query) uri.query = from.query;
      } else if (!path.starts_with('/')) {
        const size_t slash = from.path.rfind('/');
        std::string_view folder =
            from.path.substr(0, slash == std::string_view::npos ? 0 : slash + 1);
        if (folder.empty() && from.authority) folder = "/";
        path.insert(0, folder);
      }
    }
  }
  std::string text;
  if (uri.scheme) text += fmt::format("{}:", *uri.scheme);
  if (uri.authority) text += fmt::format("//{}", *uri.authority);
  text += without_dots(path);
  if (uri.query) text += fmt::format("?{}", *uri.query);
  return text;
}

struct Reference {
  std::string_view uri;
  std::string_view fragment;  // the fragment without #
};

Reference split(std::string_view reference) {
  const size_t hash = std::min(reference.find('#'), reference.size());
  return {.uri = reference.substr(0, hash),
          .fragment = reference.substr(std::min(hash + 1, reference.size()))};
}

// Decodes a step of a JSON pointer in a URI fragment.
std::string fragment_step(std::string_view step) {
  std::string text;
  for (const char letter : escaped_step(step)) {
    text += letter;
    if (letter == '%') text += "25";
  }
  return text;
}

std::optional<size_t> list_index(std::string_view text) {
  size_t index = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), index);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return index;
}

// Whether the schema has references other than pointers from the root, or an "$id" that changes the
// meaning of such pointers.
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

// An upper bound of the schema's size as text, without white space.
size_t num_bytes(const Json& part) {
  size_t sum = 1;
  if (part.is_string()) {
    sum += part.get_ref<const std::string&>().size();
  } else if (part.is_array()) {
    for (const Json& item : part) sum += num_bytes(item);
  } else if (part.is_object()) {
    for (auto it = part.begin(); it != part.end(); ++it) {
      sum += it.key().size() + num_bytes(it.value());
    }
  }
  return sum;
}

class ReferencePointers {
 public:
  explicit ReferencePointers(Json& root) : root_(root) {}

  // Rewrites the references. Error: a limit of the header is exceeded; the schema is then unusable.
  Status write() {
    bases_.emplace_back();
    base_of_.emplace("", 0);
    HEDDLE_RETURN_IF_ERROR(add_names(root_, 0, add_node({})));
    for (const Found& found : references_) HEDDLE_RETURN_IF_ERROR(rewrite(found));
    finish(root_);
    return ok_status();
  }

 private:
  using BaseId = uint32_t;
  using NodeId = uint32_t;

  // A base URI: one that "$id" sets for its subtree, or one that a reference contains.
  struct Base {
    std::string text;
    Uri uri;  // parts of `text`
  };

  // A node of the document: a member of an object or an item of a list.
  struct Node {
    NodeId parent = 0;
    const std::string* key = nullptr;  // for a member of an object: its key
    size_t index = 0;                  // for an item of a list: its index
  };

  // The node to which a name refers.
  struct Target {
    NodeId node = 0;
    bool is_single = true;  // false: several nodes have the name
  };

  struct Found {
    Json* reference;
    std::string_view keyword;
    BaseId base;
  };

  // The target of a reference: a node, or the part to which a pointer leads from it.
  struct Aim {
    NodeId node = 0;
    std::string_view pointer;
  };

  NodeId add_node(Node node) {
    nodes_.push_back(node);
    return static_cast<NodeId>(nodes_.size() - 1);
  }

  Status spend(size_t bytes) {
    num_bytes_ += bytes;
    if (num_bytes_ <= kMaxReferenceBytes) return ok_status();
    return invalid_argument(fmt::format(
        "the references of the JSON schema and their targets, written out as JSON pointers and "
        "URIs, have more than {} bytes; use shorter names, or fewer references",
        kMaxReferenceBytes));
  }

  // The absolute URI of a reference without a fragment.
  Result<std::string> resolve(BaseId base, std::string_view reference) const {
    if (reference.size() > kMaxUriBytes) return too_long(reference.size());
    std::string text = resolve_uri(bases_[base].uri, reference);
    if (text.size() > kMaxUriBytes) return too_long(text.size());
    return text;
  }

  static Status too_long(size_t num_bytes) {
    return invalid_argument(
        fmt::format("a URI of the JSON schema, in $id or a reference, has {} bytes; at most {} are "
                    "served",
                    num_bytes, kMaxUriBytes));
  }

  Result<BaseId> add_base(BaseId from, std::string_view reference) {
    if (reference.empty()) return from;
    HEDDLE_ASSIGN_OR_RETURN(std::string text, resolve(from, reference));
    const auto [entry, is_new] =
        base_of_.try_emplace(std::move(text), static_cast<BaseId>(bases_.size()));
    if (is_new) {
      HEDDLE_RETURN_IF_ERROR(spend(entry->first.size()));
      Base& base = bases_.emplace_back(Base{.text = entry->first, .uri = {}});
      base.uri = parse_uri(base.text);
    }
    return entry->second;
  }

  void add_name(BaseId base, std::string_view anchor, NodeId node) {
    const auto [entry, is_new] = names_.try_emplace({base, anchor}, Target{.node = node});
    if (!is_new && entry->second.node != node) entry->second.is_single = false;
  }

  Status add_names(Json& part, BaseId base, NodeId node) {
    if (part.is_array()) {
      for (size_t i = 0; i < part.size(); ++i) {
        HEDDLE_RETURN_IF_ERROR(add_names(part[i], base, add_node({.parent = node, .index = i})));
      }
      return ok_status();
    }
    if (!part.is_object()) return ok_status();
    if (const std::string* const id = text_of(part, "$id")) {
      const Reference name = split(*id);
      HEDDLE_ASSIGN_OR_RETURN(base, add_base(base, name.uri));
      if (!name.uri.empty()) add_name(base, "", node);
      if (!name.fragment.empty()) add_name(base, name.fragment, node);
    }
    if (node == 0) {
      add_name(0, "", node);
      root_base_ = base;
    }
    if (const std::string* const anchor = text_of(part, "$anchor")) add_name(base, *anchor, node);
    if (const std::string* const anchor = text_of(part, "$dynamicAnchor")) {
      add_name(base, *anchor, node);
      dynamic_anchors_[*anchor].insert(node);
    }
    if (const auto found = part.find("$recursiveAnchor"); found != part.end() && *found == true) {
      recursive_anchors_.insert(node);
    }
    for (const std::string_view keyword : kReferences) {
      const auto found = part.find(keyword);
      if (found == part.end() || !found->is_string()) continue;
      references_.push_back({.reference = &*found, .keyword = keyword, .base = base});
    }
    for (auto it = part.begin(); it != part.end(); ++it) {
      if (holds_values(it.key())) continue;
      const NodeId below = add_node({.parent = node, .key = &it.key()});
      if (maps_names_to_schemas(it.key()) && it.value().is_object()) {
        for (auto inner = it.value().begin(); inner != it.value().end(); ++inner) {
          HEDDLE_RETURN_IF_ERROR(
              add_names(inner.value(), base, add_node({.parent = below, .key = &inner.key()})));
        }
      } else {
        HEDDLE_RETURN_IF_ERROR(add_names(it.value(), base, below));
      }
    }
    return ok_status();
  }

  [[nodiscard]] const Target* find(BaseId base, std::string_view anchor) const {
    const auto found = names_.find({base, anchor});
    return found == names_.end() || !found->second.is_single ? nullptr : &found->second;
  }

  // The target of a reference; nullopt if it has none.
  [[nodiscard]] Result<std::optional<Aim>> aim_of(const Found& found) const {
    const Reference name = split(found.reference->get_ref<const std::string&>());
    BaseId base = found.base;
    if (!name.uri.empty()) {
      HEDDLE_ASSIGN_OR_RETURN(const std::string uri, resolve(found.base, name.uri));
      const auto known = base_of_.find(uri);
      if (known == base_of_.end()) return std::optional<Aim>();
      base = known->second;
    }
    const bool is_pointer = name.fragment.empty() || name.fragment.starts_with('/');
    if (is_pointer && base == root_base_) base = 0;
    const Target* const target = find(base, is_pointer ? "" : name.fragment);
    if (target == nullptr) return std::optional<Aim>();
    return std::optional(
        Aim{.node = target->node, .pointer = is_pointer ? name.fragment : std::string_view()});
  }

  Status rewrite(const Found& found) {
    HEDDLE_ASSIGN_OR_RETURN(const std::optional<Aim> aim, aim_of(found));
    if (aim && leads_elsewhere(found, *aim)) return ok_status();
    auto& reference = found.reference->get_ref<std::string&>();
    if (aim) {
      HEDDLE_ASSIGN_OR_RETURN(const std::string* const pointer, pointer_to(aim->node));
      HEDDLE_RETURN_IF_ERROR(spend(pointer->size() + aim->pointer.size()));
      reference = *pointer + std::string(aim->pointer);
    } else if (reference == "#" || reference.starts_with("#/")) {
      const std::string& base = bases_[found.base].text;  // two nodes have this URI
      HEDDLE_RETURN_IF_ERROR(spend(base.size()));
      reference.insert(0, base);
    }
    if (found.keyword != "$ref") dynamic_references_.insert(found.reference);
    return ok_status();
  }

  // The pointer "#/a/b" of a node, cached for the next reference.
  Result<const std::string*> pointer_to(NodeId node) {
    const auto [entry, is_new] = pointers_.try_emplace(node);
    if (!is_new) return &entry->second;
    std::vector<NodeId> way;
    for (NodeId at = node; at != 0; at = nodes_[at].parent) way.push_back(at);
    std::string& pointer = entry->second;
    pointer = "#";
    for (; !way.empty(); way.pop_back()) {
      const Node& step = nodes_[way.back()];
      pointer += '/';
      pointer += step.key != nullptr ? fragment_step(*step.key) : std::to_string(step.index);
    }
    HEDDLE_RETURN_IF_ERROR(spend(pointer.size()));
    return &pointer;
  }

  // Whether the target may depend on the path by which the reference was reached.
  [[nodiscard]] bool leads_elsewhere(const Found& found, const Aim& aim) const {
    const auto is_one_of_several = [&](const std::set<NodeId>& nodes) {
      return nodes.size() > 1 && (nodes.contains(aim.node) || !aim.pointer.empty());
    };
    if (found.keyword == "$recursiveRef") return is_one_of_several(recursive_anchors_);
    if (found.keyword != "$dynamicRef" || !aim.pointer.empty()) return false;
    const std::string_view anchor = split(found.reference->get_ref<const std::string&>()).fragment;
    const auto same = dynamic_anchors_.find(anchor);
    return same != dynamic_anchors_.end() && is_one_of_several(same->second);
  }

  // Removes each "$id" and renames references with a single target to "$ref". This moves nodes,
  // inner ones first.
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
      if (found == part.end() || !dynamic_references_.contains(&*found)) continue;
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
  BaseId root_base_ = 0;
  std::deque<Base> bases_;  // the first one is empty
  std::unordered_map<std::string, BaseId> base_of_;
  std::vector<Node> nodes_;  // the first one is the root
  // named nodes, by (base URI, anchor)
  std::map<std::pair<BaseId, std::string_view>, Target> names_;
  std::map<std::string_view, std::set<NodeId>> dynamic_anchors_;
  std::set<NodeId> recursive_anchors_;
  std::vector<Found> references_;
  std::unordered_map<NodeId, std::string> pointers_;  // cache of pointers by target
  std::unordered_set<const Json*> dynamic_references_;
  size_t num_bytes_ = 0;  // size of the text written so far
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

Result<std::optional<Json>> point_references(const Json& schema) {
  if (!has_names(schema)) return std::optional<Json>();
  if (const size_t size = num_bytes(schema); size > kMaxSchemaBytes) {
    return invalid_argument(fmt::format(
        "the JSON schema has {} bytes or more; at most {} are served", size, kMaxSchemaBytes));
  }
  Json pointed = schema;
  HEDDLE_RETURN_IF_ERROR(ReferencePointers(pointed).write());
  return std::optional(std::move(pointed));
}

}  // namespace heddle::grammar
