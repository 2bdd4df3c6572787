// SPDX-License-Identifier: Apache-2.0
#include "chat/conversation.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace heddle::chat {
namespace {

using Json = nlohmann::ordered_json;

// ---- Short conversations that probe what a template supports ----

// Words that occur in no template.
constexpr const char* kFirstWord = "zqxfirst";
constexpr const char* kSecondWord = "zqxsecond";
constexpr const char* kThirdWord = "zqxthird";
constexpr const char* kFourthWord = "zqxfourth";
constexpr const char* kFunction = "zqxfunction";
constexpr const char* kLongId = "call_0123456789abcdef01234567";

Json said(const char* role, const Json& content) { return {{"role", role}, {"content", content}}; }

Json called(const std::string& content, const std::vector<std::string>& values) {
  Json message = said("assistant", content);
  for (size_t i = 0; i < values.size(); ++i) {
    message["tool_calls"].push_back(
        {{"id", fmt::format("{}{}", kLongId, i)},
         {"type", "function"},
         {"function",
          {{"name", kFunction}, {"arguments", fmt::format("{{\"zqxkey\": \"{}\"}}", values[i])}}}});
  }
  return message;
}

Json returned(size_t index, const char* text) {
  Json message = said("tool", text);
  message["tool_call_id"] = fmt::format("{}{}", kLongId, index);
  return message;
}

Json probe_tools() {
  return Json::array(
      {{{"type", "function"},
        {"function",
         {{"name", kFunction},
          {"description", "Finds."},
          {"parameters",
           {{"type", "object"}, {"properties", {{"zqxkey", {{"type", "string"}}}}}}}}}}});
}

// Whether the prompt contains lists of parts or dicts as Python prints them: the template did not
// read them.
bool shows_python(std::string_view prompt) {
  return prompt.find("'type'") != std::string_view::npos ||
         prompt.find("\"type\": \"text\"") != std::string_view::npos ||
         prompt.find("'zqxkey'") != std::string_view::npos;
}

class TemplateProbe {
 public:
  TemplateProbe(const ChatTemplate& chat_template, const LostTextCheck& check, bool with_tools)
      : template_(chat_template), check_(check), tools_(with_tools ? probe_tools() : Json()) {}

  Arrangement run() {
    find_lists();
    find_system_texts();
    how_.turns_alternate =
        wants({said("user", kFirstWord), said("user", kSecondWord)}, &Arrangement::turns_alternate);
    find_calls();
    return how_;
  }

 private:
  [[nodiscard]] bool takes(const Arrangement& how, const Json& messages) const {
    const auto text = template_.render(arrange(messages, how, " "), tools_, true, nullptr, nullptr,
                                       how.arguments);
    return text.ok() && !shows_python(*text) && !check_.find(messages, *text, false);
  }

  // Whether the template accepts these messages with the setting `member` and not without it.
  [[nodiscard]] bool wants(const Json& messages, bool Arrangement::* member) const {
    Arrangement changed = how_;
    changed.*member = true;
    return !takes(how_, messages) && takes(changed, messages);
  }

  void find_lists() {
    const Json parts = {{{"type", "text"}, {"text", kFirstWord}},
                        {{"type", "text"}, {"text", kSecondWord}}};
    const auto try_list = [&](Speaker speaker, const std::vector<Json>& before,
                              const std::vector<Json>& after) {
      const auto with = [&](const Json& content) {
        Json messages = before;
        messages.back()["content"] = content;
        for (const Json& message : after) messages.push_back(message);
        return messages;
      };
      const auto index = static_cast<size_t>(speaker);
      Arrangement changed = how_;
      changed.lists[index] = true;
      if (takes(changed, with(parts))) how_ = changed;
      if (!how_.lists[index] || takes(how_, with(kFirstWord))) return;
      changed.wraps[index] = true;
      if (takes(changed, with(kFirstWord))) how_ = changed;
    };
    try_list(Speaker::kUser, {said("user", "")}, {});
    try_list(Speaker::kSystem, {said("system", "")}, {said("user", kThirdWord)});
    try_list(Speaker::kAssistant, {said("user", kThirdWord), said("assistant", "")},
             {said("user", kFourthWord)});
    try_list(Speaker::kTool, {said("user", kThirdWord), called("", {kFourthWord}), returned(0, "")},
             {});
  }

  void find_system_texts() {
    const Json user = said("user", kSecondWord);
    const Json assistant = said("assistant", kThirdWord);
    const Json system = said("system", kFirstWord);
    if (!takes(how_, {system, user})) {
      how_.systems = SystemTexts::kInTurns;
      if (!takes(how_, {system, user})) how_.systems = SystemTexts::kInPlace;
      return;
    }
    const Json later = said("user", kFourthWord);
    const bool takes_late =
        takes(how_, {user, system}) && takes(how_, {user, system, assistant, later}) &&
        takes(how_, {user, assistant, system, later}) &&
        takes(how_, {said("system", "zqxrules"), user, assistant, later, system});
    if (!takes_late) how_.systems = SystemTexts::kLateInTurns;
  }

  // The smallest change with which the template accepts a call and its result.
  [[nodiscard]] Arrangement form_of_calls(const Json& messages) const {
    for (unsigned changes = 0; changes < 8; ++changes) {
      Arrangement form = how_;
      if ((changes & 1U) != 0) form.arguments = ArgumentsForm::kAsSent;
      if ((changes & 2U) != 0) form.null_content = true;
      if ((changes & 4U) != 0) form.short_ids = true;
      if (takes(form, messages)) return form;
    }
    Arrangement as_text = how_;
    as_text.calls_as_text = true;
    return takes(as_text, messages) ? as_text : how_;
  }

  void find_calls() {
    const Json user = said("user", kFirstWord);
    std::vector<Json> ending = {said("assistant", kFourthWord)};
    if (!takes(how_, {user, ending[0]})) ending.push_back(said("user", "zqxlast"));
    const auto ended = [&](Json messages) {
      for (const Json& message : ending) messages.push_back(message);
      return messages;
    };
    how_ = form_of_calls(ended({user, called("", {kSecondWord}), returned(0, kThirdWord)}));
    if (how_.calls_as_text) return;
    how_.one_call_each = wants(ended({user, called("", {kSecondWord, "zqxother"}),
                                      returned(0, kThirdWord), returned(1, "zqxfifth")}),
                               &Arrangement::one_call_each);
    how_.content_apart =
        wants(ended({user, called("zqxtext", {kSecondWord}), returned(0, kThirdWord)}),
              &Arrangement::content_apart);
    how_.orphans_as_text =
        wants(ended({user, returned(0, kThirdWord)}), &Arrangement::orphans_as_text);
  }

  const ChatTemplate& template_;
  const LostTextCheck& check_;
  const Json tools_;
  Arrangement how_;
};

// Whether some prompt, with or without a system text, contains the name of a tool.
bool template_shows_tools(const ChatTemplate& chat_template) {
  const Json user = said("user", kFirstWord);
  bool is_rendered = false;
  for (const Json& messages :
       {Json::array({user}), Json::array({said("system", kSecondWord), user})}) {
    const auto text = chat_template.render(messages, probe_tools(), true, nullptr);
    if (!text.ok()) continue;
    is_rendered = true;
    if (text->find(kFunction) != std::string::npos) return true;
  }
  return !is_rendered;  // if the template refuses these short conversations, longer ones may still
                        // show tools
}

// ---- The forms of one conversation ----

// `usual`, followed by each form that changes the conversation further.
std::vector<Arrangement> forms_to_try(const Arrangement& usual, const ConversationTraits& traits) {
  std::vector<Arrangement> forms = {usual};
  Arrangement next = usual;
  const auto add = [&](bool applies, auto change) {
    if (!applies) return;
    change(next);
    if (next != forms.back()) forms.push_back(next);
  };
  add(traits.has_lists, [](Arrangement& how) { how.lists = {}; });
  add(traits.has_late_system && usual.systems == SystemTexts::kInPlace,
      [](Arrangement& how) { how.systems = SystemTexts::kLateInTurns; });
  add(traits.has_calls, [](Arrangement& how) {
    how.arguments =
        how.arguments == ArgumentsForm::kValues ? ArgumentsForm::kAsSent : ArgumentsForm::kValues;
  });
  next.arguments = usual.arguments;
  add(traits.has_calls, [](Arrangement& how) { how.null_content = true; });
  add(traits.has_calls || traits.has_results, [](Arrangement& how) { how.short_ids = true; });
  add(traits.has_parallel_calls, [](Arrangement& how) { how.one_call_each = true; });
  add(traits.has_content_beside_calls, [](Arrangement& how) { how.content_apart = true; });
  add(traits.has_results, [](Arrangement& how) { how.orphans_as_text = true; });
  add(traits.has_empty_answer, [](Arrangement& how) { how.fills_empty = true; });
  add(traits.breaks_turns || traits.has_late_system || traits.has_results,
      [](Arrangement& how) { how.turns_alternate = true; });
  add(traits.has_late_system && usual.systems != SystemTexts::kInTurns,
      [](Arrangement& how) { how.systems = SystemTexts::kLateInFirst; });
  add(traits.has_system, [](Arrangement& how) { how.systems = SystemTexts::kInTurns; });
  add(traits.has_calls || traits.has_results, [](Arrangement& how) { how.calls_as_text = true; });
  return forms;
}

// Whether arrange() would leave a conversation with these traits unchanged.
bool is_arranged(const Arrangement& how, const ConversationTraits& traits) {
  const bool calls_stay = how.arguments == ArgumentsForm::kValues && !how.calls_as_text &&
                          !how.content_apart && !how.one_call_each && !how.short_ids &&
                          !how.null_content;
  if (std::ranges::find(how.wraps, true) != how.wraps.end()) return false;
  return !traits.has_results && !traits.has_lists && !traits.has_several_first &&
         (!traits.has_calls || calls_stay) && (!traits.has_empty_answer || !how.fills_empty) &&
         (!traits.has_late_system || how.systems == SystemTexts::kInPlace) &&
         (!traits.has_system || how.systems != SystemTexts::kInTurns) &&
         (!traits.breaks_turns || !how.turns_alternate);
}

std::string role_of(const Json& message) {
  const Json role = message.value("role", Json());
  return role.is_string() ? role.get<std::string>() : std::string();
}

Status lost_text_error(const Json& messages, size_t index) {
  return invalid_argument(
      fmt::format("The model's chat template leaves the text of message {} (role {}) out of the "
                  "prompt. Send it with another role, for example as a user's message.",
                  index, role_of(messages[index])));
}

}  // namespace

ConversationRenderer::ConversationRenderer(ChatTemplate chat_template)
    : template_(std::move(chat_template)),
      checks_{LostTextCheck(template_.source(false)), LostTextCheck(template_.source(true))},
      usual_{TemplateProbe(template_, checks_[0], false).run(),
             TemplateProbe(template_, checks_[1], true).run()},
      tool_members_(template_),
      shows_tools_(template_shows_tools(template_)) {}

Result<std::string> ConversationRenderer::render(const Json& messages, const Json& tools,
                                                 bool add_generation_prompt,
                                                 const Json& extra_variables,
                                                 std::string_view part_separator) const {
  if (!messages.is_array()) return invalid_argument("messages must be a list");
  for (const Json& message : messages) {
    if (!message.is_object()) return invalid_argument("a message must be an object");
  }
  const size_t kind = tools.is_array() && !tools.empty() ? 1 : 0;
  if (kind == 1 && tool_members_.misses(tools)) {
    return render(messages, tool_members_.complete(tools), add_generation_prompt, extra_variables,
                  part_separator);
  }
  const ConversationTraits traits = traits_of(messages);
  std::optional<Status> failure;
  std::optional<std::string>
      without_answers;  // the first prompt that lacks only texts of the assistant
  for (const Arrangement& how : forms_to_try(usual_[kind], traits)) {
    RenderReport report;
    const bool as_sent = is_arranged(how, traits);
    const Json arranged = as_sent ? Json() : arrange(messages, how, part_separator);
    auto text = template_.render(as_sent ? messages : arranged, tools, add_generation_prompt,
                                 extra_variables, &report, how.arguments);
    if (!text.ok()) {
      if (!failure) failure = text.status();
      if (report.exceeded_limits) break;
      continue;
    }
    const auto lost = checks_[kind].find(messages, *text, /*skip_assistant=*/false);
    if (!lost) return text;
    if (!failure) failure = lost_text_error(messages, *lost);
    if (!without_answers && !checks_[kind].find(messages, *text, /*skip_assistant=*/true)) {
      without_answers = std::move(*text);
    }
  }
  if (without_answers) return *std::move(without_answers);
  return *failure;
}

}  // namespace heddle::chat
