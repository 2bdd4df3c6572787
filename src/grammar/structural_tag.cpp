// SPDX-License-Identifier: Apache-2.0
#include "grammar/structural_tag.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "grammar/byte_dfa.h"
#include "grammar/ebnf.h"
#include "grammar/marked_text.h"
#include "grammar/pattern.h"
#include "grammar/schema_keywords.h"

namespace heddle::grammar {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxTags = 1024;
constexpr size_t kMaxMarkBytes = 1024;

// A schema with only the types of `schema`, for schemas of which no other keyword can be enforced.
Json types_alone(const Json& schema) {
  if (!schema.is_object() || !schema.contains("type")) return true;
  Json types = {{"type", schema["type"]}};
  return check_keywords(types).empty() ? types : Json(true);
}

class TagCompiler {
 public:
  TagCompiler(Nfa& nfa, const JsonSchemaOptions& options, const VocabularyMasks* vocabulary,
              std::vector<std::string>& left_out)
      : nfa_(nfa), options_(options), vocabulary_(vocabulary), left_out_(left_out) {}

  Status compile(NfaState from, const Json& tag, NfaState to) {
    if (!tag.is_object()) {
      fail("", "it must be an object");
    } else if (const auto format = tag.find("format"); format != tag.end()) {
      add_format(from, *format, "/format", to);
    } else {
      add_legacy(from, tag, to);
    }
    return nfa_.status();
  }

 private:
  struct Tag {
    std::string begin;
    const Json* content;  // a format; in the old form a schema
    std::string end;      // the end's text or special_token_bytes()
    std::string path;
  };

  void fail(std::string_view path, std::string_view message) {
    nfa_.fail(invalid_argument(fmt::format("structural tag at \"{}\": {}", path, message)));
  }

  // A member of the required type; otherwise null, and an error is reported.
  const Json* member(const Json& object, const char* name, Json::value_t type,
                     const std::string& path) {
    if (object.is_object()) {
      const auto found = object.find(name);
      if (found != object.end() && found->type() == type) return &*found;
    }
    const std::string_view wanted = type == Json::value_t::string  ? "a string"
                                    : type == Json::value_t::array ? "a list"
                                                                   : "an object";
    fail(path, fmt::format("\"{}\" must be {}", name, wanted));
    return nullptr;
  }

  std::string text_of(const Json& object, const char* name, const std::string& path) {
    const Json* text = member(object, name, Json::value_t::string, path);
    if (text == nullptr) return {};
    if (text->get_ref<const std::string&>().size() > kMaxMarkBytes) {
      fail(path, fmt::format("\"{}\" has more than {} bytes", name, kMaxMarkBytes));
      return {};
    }
    return text->get<std::string>();
  }

  // The bytes of a special token, by the text of a token format.
  std::string token_of(const Json& format, const std::string& path) {
    return token_bytes(text_of(format, "token", path));
  }

  [[nodiscard]] std::string token_bytes(std::string_view text) const {
    const bool is_special = vocabulary_ != nullptr && vocabulary_->has_special_token(text);
    return is_special ? special_token_bytes(text) : std::string(text);
  }

  // The bytes of an end, which is a text or a format of type token.
  std::string end_of(const Json& format, const std::string& path) {
    const auto end = format.is_object() ? format.find("end") : format.end();
    const bool is_token =
        end != format.end() && end->is_object() && end->value("type", Json()) == "token";
    return is_token ? token_of(*end, path + "/end") : text_of(format, "end", path);
  }

  static bool is_mark(const Json& text) {
    if (!text.is_string()) return false;
    const size_t size = text.get_ref<const std::string&>().size();
    return size > 0 && size <= kMaxMarkBytes;
  }

  bool flag_of(const Json& object, const char* name, const std::string& path) {
    const auto found = object.find(name);
    if (found == object.end()) return false;
    if (!found->is_boolean()) fail(path, fmt::format("\"{}\" must be a boolean", name));
    return *found == true;
  }

  void add_legacy(NfaState from, const Json& tag, NfaState to) {
    const Json* structures = member(tag, "structures", Json::value_t::array, "");
    if (structures == nullptr) return;
    std::vector<Tag> tags;
    for (size_t i = 0; i < structures->size() && nfa_.status().ok(); ++i) {
      const Json& structure = (*structures)[i];
      const std::string path = fmt::format("/structures/{}", i);
      Tag next{.begin = text_of(structure, "begin", path),
               .content = nullptr,
               .end = text_of(structure, "end", path),
               .path = path};
      if (!nfa_.status().ok()) return;
      const auto schema = structure.find("schema");
      if (schema == structure.end()) {
        fail(path, "\"schema\" is missing");
        return;
      }
      next.content = &*schema;
      tags.push_back(std::move(next));
    }
    add_triggered(from, tag, tags, "", /*is_legacy=*/true, to);
  }

  void add_format(NfaState from, const Json& format, const std::string& path, NfaState to) {
    if (!nfa_.status().ok()) return;
    const Json* type = member(format, "type", Json::value_t::string, path);
    if (type == nullptr || !can_be_kept_to(format)) return;
    const std::string& name = type->get_ref<const std::string&>();
    if (name == "const_string") {
      const Json* value = member(format, "value", Json::value_t::string, path);
      if (value != nullptr) nfa_.add_text(from, value->get_ref<const std::string&>(), to);
    } else if (name == "json_schema") {
      add_schema(from, format, ValueForm::kJson, path, to);
    } else if (name == "python_arguments") {
      add_schema(from, format, ValueForm::kPythonArguments, path, to);
    } else if (name == "gemma_arguments") {
      add_schema(from, format, ValueForm::kGemmaArguments, path, to);
    } else if (name == "regex") {
      const Json* pattern = member(format, "pattern", Json::value_t::string, path);
      if (pattern == nullptr) return;
      const Result<Pattern> parsed = Pattern::parse(pattern->get_ref<const std::string&>());
      if (!parsed.ok()) return fail(path, parsed.status().message());
      parsed->add_whole(nfa_, from, TextForm::kPlain, to);
    } else if (name == "grammar") {
      const Json* grammar = member(format, "grammar", Json::value_t::string, path);
      if (grammar != nullptr)
        (void)add_ebnf(nfa_, from, grammar->get_ref<const std::string&>(), to);
    } else if (name == "token") {
      nfa_.add_text(from, token_of(format, path), to);
    } else if (name == "any_text") {
      add_any_text(from, format, "", path, to);
    } else if (name == "sequence" || name == "or") {
      add_elements(from, format, name == "or", path, to);
    } else if (name == "tag") {
      const Tag tag = read_tag(format, path);
      if (!nfa_.status().ok()) return;
      const NfaState inside = nfa_.add_state();
      nfa_.add_text(from, tag.begin, inside);
      add_tag_rest(inside, tag, false, to);
    } else if (name == "triggered_tags") {
      add_triggered(from, format, read_tags(format, path), path, false, to);
    } else if (name == "tags_with_separator") {
      add_separated(from, format, path, to);
    } else {
      fail(path,
           fmt::format("the type \"{}\" is not supported; there are const_string, json_schema, "
                       "python_arguments, gemma_arguments, regex, grammar, token, any_text, "
                       "sequence, or, tag, "
                       "triggered_tags and tags_with_separator",
                       name));
    }
  }

  // Whether the format's schema, if it has one, can be enforced.
  bool can_be_kept_to(const Json& format) {
    const auto schema = format.find("stands_for");
    if (schema == format.end()) return true;
    Nfa unused;
    const NfaState begin = unused.add_state();
    const NfaState end = unused.add_state();
    const Status status = add_json_schema(unused, begin, *schema, options_for(format), end);
    if (!status.ok()) nfa_.fail(status);
    return status.ok();
  }

  [[nodiscard]] JsonSchemaOptions options_for(const Json& format) const {
    JsonSchemaOptions options = options_;
    options.refuses_contradictions = format.value("optional", Json(false)) != true;
    return options;
  }

  void add_schema(NfaState from, const Json& format, ValueForm form, const std::string& path,
                  NfaState to) {
    const auto schema = format.find("json_schema");
    if (schema == format.end()) return fail(path, "\"json_schema\" is missing");
    JsonSchemaOptions options = options_for(format);
    options.form = form;
    options.text_mark = token_bytes(kGemmaTextMark);
    if (Status status = options.check == nullptr ? ok_status() : (*options.check)(); !status.ok()) {
      return nfa_.fail(std::move(status));
    }
    if (format.value("strict", Json(true)) != false) {
      (void)add_json_schema(nfa_, from, *schema, options, to);
      return;
    }
    Result<WeakenedSchema> result = weaken_schema(*schema, options);
    if (!result.ok()) return nfa_.fail(result.status());
    WeakenedSchema weakened = std::move(result).value();
    const Json tool = format.value("of", Json());
    for (const std::string& reason : weakened.left_out) {
      left_out_.push_back(tool.is_string()
                              ? fmt::format("the tool \"{}\": {}", tool.get<std::string>(), reason)
                              : reason);
    }
    if (weakened.schema.is_null()) weakened.schema = types_alone(*schema);
    // number of states that every schema has in common
    constexpr size_t kCommonStates = 512;
    num_weakened_states_ += std::max(weakened.num_states, kCommonStates) - kCommonStates;
    if (num_weakened_states_ > kMaxDfaStates) {
      return nfa_.fail(invalid_argument(
          fmt::format("the schemas together need more than {} states; use fewer or simpler ones",
                      kMaxDfaStates)));
    }
    (void)add_json_schema(nfa_, from, weakened.schema, options, to);
  }

  // Adds any text up to the first `end`; with an empty `end`, text of any length.
  void add_any_text(NfaState from, const Json& format, const std::string& end,
                    const std::string& path, NfaState to) {
    std::vector<Mark> marks;
    if (!end.empty()) marks.push_back({.text = end, .target = to});
    if (format.contains("excludes")) {
      const Json* excludes = member(format, "excludes", Json::value_t::array, path);
      if (excludes == nullptr) return;
      if (excludes->size() > kMaxTags || !std::ranges::all_of(*excludes, is_mark)) {
        return fail(path, fmt::format("\"excludes\" must have at most {} strings of 1 to {} bytes",
                                      kMaxTags, kMaxMarkBytes));
      }
      const NfaState nowhere = nfa_.add_state();
      for (const Json& text : *excludes) {
        marks.push_back({.text = text.get<std::string>(), .target = nowhere});
      }
    }
    add_marked_text(nfa_, from, marks, end.empty(), to);
  }

  void add_elements(NfaState from, const Json& format, bool is_choice, const std::string& path,
                    NfaState to) {
    const Json* elements = member(format, "elements", Json::value_t::array, path);
    if (elements == nullptr) return;
    if (elements->empty() || elements->size() > kMaxTags) {
      return fail(path, fmt::format("\"elements\" must have 1 to {} entries", kMaxTags));
    }
    for (size_t i = 0; i < elements->size() && nfa_.status().ok(); ++i) {
      const std::string place = fmt::format("{}/elements/{}", path, i);
      if (is_choice) {
        const NfaState begin = nfa_.add_state();
        nfa_.add_empty(from, begin);
        add_format(begin, (*elements)[i], place, to);
        continue;
      }
      const NfaState next = i + 1 == elements->size() ? to : nfa_.add_state();
      add_format(from, (*elements)[i], place, next);
      from = next;
    }
  }

  Tag read_tag(const Json& format, const std::string& path) {
    Tag tag{.begin = text_of(format, "begin", path),
            .content = member(format, "content", Json::value_t::object, path),
            .end = end_of(format, path),
            .path = path};
    return tag;
  }

  std::vector<Tag> read_tags(const Json& format, const std::string& path) {
    std::vector<Tag> tags;
    const Json* list = member(format, "tags", Json::value_t::array, path);
    if (list == nullptr) return tags;
    for (size_t i = 0; i < list->size() && nfa_.status().ok(); ++i) {
      tags.push_back(read_tag((*list)[i], fmt::format("{}/tags/{}", path, i)));
    }
    if (tags.empty() || tags.size() > kMaxTags) {
      fail(path, fmt::format("\"tags\" must have 1 to {} entries", kMaxTags));
    }
    return tags;
  }

  void add_separated(NfaState from, const Json& format, const std::string& path, NfaState to) {
    const std::vector<Tag> tags = read_tags(format, path);
    const std::string separator = text_of(format, "separator", path);
    const bool at_least_one = flag_of(format, "at_least_one", path);
    const bool stops_after_first = flag_of(format, "stop_after_first", path);
    if (!nfa_.status().ok()) return;
    const NfaState begin = nfa_.add_state();
    const NfaState after = nfa_.add_state();
    nfa_.add_empty(from, begin);
    if (!at_least_one) nfa_.add_empty(from, to);
    for (const Tag& tag : tags) {
      const NfaState inside = nfa_.add_state();
      nfa_.add_text(begin, tag.begin, inside);
      add_tag_rest(inside, tag, false, after);
    }
    nfa_.add_empty(after, to);
    if (!stops_after_first) nfa_.add_text(after, separator, begin);
  }

  // Adds a tag without its begin.
  void add_tag_rest(NfaState from, const Tag& tag, bool is_legacy, NfaState to) {
    if (is_legacy) {
      const NfaState after = nfa_.add_state();
      (void)add_json_schema(nfa_, from, *tag.content, options_, after);
      nfa_.add_text(after, tag.end, to);
      return;
    }
    const auto type = tag.content->find("type");
    if (type != tag.content->end() && *type == "any_text" && !tag.end.empty()) {
      add_any_text(from, *tag.content, tag.end, tag.path + "/content", to);
      return;
    }
    const NfaState after = nfa_.add_state();
    add_format(from, *tag.content, tag.path + "/content", after);
    nfa_.add_text(after, tag.end, to);
  }

  void add_triggered(NfaState from, const Json& format, const std::vector<Tag>& tags,
                     const std::string& path, bool is_legacy, NfaState to) {
    const Json* triggers = member(format, "triggers", Json::value_t::array, path);
    if (triggers == nullptr || !nfa_.status().ok()) return;
    if (tags.empty() || tags.size() > kMaxTags || triggers->empty() ||
        triggers->size() > kMaxTags) {
      return fail(path, fmt::format("it must have 1 to {} tags, and triggers", kMaxTags));
    }
    const bool at_least_one = flag_of(format, "at_least_one", path);
    const bool stops_after_first = flag_of(format, "stop_after_first", path);

    const NfaState after_tag = nfa_.add_state();
    std::vector<Mark> marks;
    std::vector<bool> is_used(tags.size());
    for (const Json& trigger : *triggers) {
      if (!is_mark(trigger)) {
        return fail(path,
                    fmt::format("a trigger must be a string of 1 to {} bytes", kMaxMarkBytes));
      }
      const std::string& text = trigger.get_ref<const std::string&>();
      const NfaState inside = nfa_.add_state();
      marks.push_back({.text = text, .target = inside});
      for (size_t i = 0; i < tags.size(); ++i) {
        if (!tags[i].begin.starts_with(text) || is_used[i]) continue;
        is_used[i] = true;
        const NfaState content = nfa_.add_state();
        nfa_.add_text(inside, tags[i].begin.substr(text.size()), content);
        add_tag_rest(content, tags[i], is_legacy, after_tag);
      }
    }
    const auto unused = std::ranges::find(is_used, false);
    if (unused != is_used.end()) {
      const Tag& tag = tags[static_cast<size_t>(unused - is_used.begin())];
      return fail(tag.path, fmt::format("no trigger begins \"{}\"", tag.begin));
    }
    if (at_least_one) {
      for (const Mark& mark : marks) nfa_.add_text(from, mark.text, mark.target);
    } else {
      add_marked_text(nfa_, from, marks, true, to);
    }
    if (stops_after_first) {
      nfa_.add_empty(after_tag, to);
    } else {
      add_marked_text(nfa_, after_tag, marks, true, to);
    }
  }

  Nfa& nfa_;
  const JsonSchemaOptions options_;
  const VocabularyMasks* const vocabulary_;
  std::vector<std::string>& left_out_;
  size_t num_weakened_states_ = 0;
};

}  // namespace

Status add_structural_tag(Nfa& nfa, NfaState from, const Json& tag,
                          const JsonSchemaOptions& options, const VocabularyMasks* vocabulary,
                          std::vector<std::string>& left_out, NfaState to) {
  return TagCompiler(nfa, options, vocabulary, left_out).compile(from, tag, to);
}

}  // namespace heddle::grammar
