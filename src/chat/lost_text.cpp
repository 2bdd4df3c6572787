// SPDX-License-Identifier: Apache-2.0
#include "chat/lost_text.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "chat/arrangement.h"
#include "chat/lexer.h"
#include "chat/spelled_json.h"
#include "chat/text_operations.h"

namespace heddle::chat {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMinMarkBytes = 3;
constexpr size_t kRescans = 16;

bool is_word_byte(unsigned char byte) {
  return byte >= 0x80 || (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'z') ||
         (byte >= 'A' && byte <= 'Z');
}

// Searches a prompt for the texts of its conversation, in their order.
class TextSearch {
 public:
  TextSearch(std::string_view prompt, const std::vector<std::string>& marks)
      : prompt_(prompt), marks_(marks), rescan_bytes_(kRescans * prompt.size() + 4096) {}

  // Begins a new message: its texts may be in any order, but after those of earlier messages.
  void begin_message() { begin_ = end_; }

  bool find(std::string_view text, bool is_answer) {
    text = stripped(text, std::nullopt, true, true);
    if (text.empty() || find_verbatim(text)) return true;
    return find_pieces(text, is_answer);
  }

 private:
  // Searches the prompt from `from` on and returns whether it contains the text.
  bool find_from(std::string_view text, size_t from) {
    const size_t at = find_text(prompt_, text, from);
    if (at == std::string_view::npos) return false;
    end_ = std::max(end_, at + text.size());
    return true;
  }

  // Whether the budget allows another search from the beginning; deducts its cost.
  bool may_rescan() {
    if (rescan_bytes_ < prompt_.size()) return false;
    rescan_bytes_ -= prompt_.size();
    return true;
  }

  bool find_verbatim(std::string_view text) {
    if (find_from(text, begin_)) return true;
    if (begin_ == 0) return false;
    if (!may_rescan()) return true;
    // the template moved this text; the order of the others is unchanged
    return find_text(prompt_, text, 0) != std::string_view::npos;
  }

  bool find_pieces(std::string_view text, bool is_answer) {
    std::vector<std::string_view> pieces = {text};
    for (const std::string& mark : marks_) {
      const bool hides = is_answer && (mark.front() == '<' || mark.front() == '[');
      std::vector<std::string_view> shorter;
      for (const std::string_view piece : pieces) {
        size_t begin = 0;
        for (size_t at = 0; (at = find_text(piece, mark, begin)) != std::string_view::npos;) {
          if (hides) shorter.clear();
          if (!hides) shorter.push_back(piece.substr(begin, at - begin));
          begin = at + mark.size();
        }
        shorter.push_back(piece.substr(begin));
      }
      pieces = std::move(shorter);
    }
    for (std::string_view piece : pieces) {
      piece = stripped(piece, std::nullopt, true, true);
      if (piece.empty() || (piece.size() < text.size() && find_verbatim(piece))) continue;
      if (!find_words(piece, begin_) && !(begin_ > 0 && may_rescan() && find_words(piece, 0))) {
        return false;
      }
    }
    return true;
  }

  // Finds the words of a text one after another, because the text itself may be escaped.
  bool find_words(std::string_view text, size_t from) {
    for (size_t i = 0; i < text.size();) {
      if (!is_word_byte(static_cast<unsigned char>(text[i]))) {
        ++i;
        continue;
      }
      size_t end = i;
      while (end < text.size() && is_word_byte(static_cast<unsigned char>(text[end]))) ++end;
      // White space beyond ASCII may be at a word's ends; it is stripped because templates trim it.
      const std::string_view word = stripped(text.substr(i, end - i), std::nullopt, true, true);
      i = end;
      if (word.empty()) continue;
      const size_t at = find_text(prompt_, word, from);
      if (at == std::string_view::npos) return false;
      from = at + word.size();
    }
    end_ = std::max(end_, from);
    return true;
  }

  const std::string_view prompt_;
  const std::vector<std::string>& marks_;
  size_t rescan_bytes_;
  size_t begin_ = 0;  // earliest position of the current message's texts
  size_t end_ = 0;    // position after the last text that was found
};

// Finds the texts within the values of a call's arguments.
bool find_values(const Value& value, TextSearch& search) {
  if (value.is_string()) return search.find(value.as_string(), false);
  if (value.is(Kind::kSequence)) {
    return std::ranges::all_of(value.as_sequence()->items,
                               [&](const Value& item) { return find_values(item, search); });
  }
  if (value.is(Kind::kDict)) {
    return std::ranges::all_of(value.as_dict().entries(), [&](const Dict::Entry& entry) {
      return find_values(entry.second, search);
    });
  }
  return true;
}

bool find_arguments(const Json& arguments, TextSearch& search) {
  if (arguments.is_string()) {
    const auto& text = arguments.get_ref<const std::string&>();
    const auto value = value_from_arguments(text);
    if (value.ok() && find_values(*value, search)) return true;
    return search.find(text, false);
  }
  return std::ranges::all_of(arguments, [&](const Json& part) {
    if (part.is_string()) return search.find(part.get_ref<const std::string&>(), false);
    return !part.is_structured() || find_arguments(part, search);
  });
}

bool find_calls(const Json& message, TextSearch& search) {
  const auto calls = message.find("tool_calls");
  if (calls == message.end() || !calls->is_array()) return true;
  for (const Json& call : *calls) {
    if (!call.is_object() || !call.contains("function")) continue;
    const Json& function = call["function"];
    if (!function.is_object()) continue;
    const Json name = function.value("name", Json());
    if (name.is_string() && !search.find(name.get_ref<const std::string&>(), false)) return false;
    if (!find_arguments(function.value("arguments", Json()), search)) return false;
  }
  return true;
}

bool find_content(const Json& message, bool is_answer, TextSearch& search) {
  const auto content = message.find("content");
  if (content == message.end()) return true;
  if (content->is_string()) {
    return search.find(content->get_ref<const std::string&>(), is_answer);
  }
  if (!content->is_array()) return true;
  return std::ranges::all_of(*content, [&](const Json& part) {
    if (!part.is_object()) return true;
    const auto text = part.find("text");
    return text == part.end() || !text->is_string() ||
           search.find(text->get_ref<const std::string&>(), is_answer);
  });
}

}  // namespace

LostTextCheck::LostTextCheck(const std::string& template_source) {
  const auto tokens = tokenize(template_source, "chat_template", {});
  if (!tokens.ok()) return;
  for (const Token& token : *tokens) {
    if (token.kind != TokenKind::kString) continue;
    const std::string_view mark = stripped(token.text, std::nullopt, true, true);
    const bool is_words = std::ranges::all_of(mark, [](char c) {
      return is_word_byte(static_cast<unsigned char>(c)) || c == ' ' || c == '_';
    });
    if (mark.size() >= kMinMarkBytes && !is_words) marks_.emplace_back(mark);
  }
  // Longer marks come first, because a mark may be a part of a longer one.
  std::ranges::sort(marks_, [](const std::string& a, const std::string& b) {
    return a.size() != b.size() ? a.size() > b.size() : a < b;
  });
  marks_.erase(std::ranges::unique(marks_).begin(), marks_.end());
}

std::optional<size_t> LostTextCheck::find(const Json& messages, std::string_view prompt,
                                          bool skip_assistant) const {
  TextSearch search(prompt, marks_);
  for (size_t i = 0; i < messages.size(); ++i) {
    const bool is_answer = speaker_of(messages[i]) == Speaker::kAssistant;
    if (is_answer && skip_assistant) continue;
    search.begin_message();
    if (!find_content(messages[i], is_answer, search) || !find_calls(messages[i], search)) return i;
  }
  return std::nullopt;
}

}  // namespace heddle::chat
