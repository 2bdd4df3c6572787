// SPDX-License-Identifier: Apache-2.0
// The fields of every request body that the server reads. A reader names a field by its table,
// `fields.flag(Body::kAnswer["stream"])`, so that type, range and default are only written here.
// api_description.cpp lists which tables form the body of each route. Fields that are always
// refused are not listed.
//
// Threading: constants; thread-safe.
#pragma once

#include <heddle/engine.h>

#include "request/validate.h"
#include "server/call/field_table.h"

namespace heddle::server {

struct Body {
  using enum FieldType;

  static constexpr double kMaxMilliseconds = 1e10;  // limit for times in ms: four months

  // ---- What the APIs that generate share ----

  static constexpr auto kModel = field_table({
      {"model", kString, "", "Name of the model; by default the first one that is served."},
  });
  static constexpr auto kStreamOptions = field_table({
      {"include_usage", kBoolean, "false", "Ends the stream with an event that has the usage."},
      {"continuous_usage_stats", kBoolean, "false", "Adds the usage so far to every event."},
  });
  static constexpr auto kCall = field_table({
      {"rid", kString, "",
       "Id of the request: 1 to 128 letters, digits and . _ : -; by default a new one."},
      {"no_logs", kBoolean, "false", "Keeps the request out of the request log."},
      {"stream", kBoolean, "false", "Sends the answer as events while it is drawn."},
      {"return_token_ids", kBoolean, "false", "Adds the ids of the answer's tokens."},
      {"return_cached_tokens_details", kBoolean, "false",
       "Says in the usage where cached tokens came from."},
      {"stream_options", kObject, "", "What events of a stream have.", {}, kStreamOptions},
  });
  static constexpr auto kScheduling = field_table({
      {"priority", kInteger, "", "Priority of the request; by default that of x-priority."},
      {"user", kString, "", "Tenant of the request, up to 1024 bytes."},
      {"routing_key", kString, "", "Text that the policy routing-key groups requests by."},
      {"ttft_slo_ms",
       kNumber,
       "",
       "Milliseconds within which the first token is wanted.",
       {.min = 0, .max = kMaxMilliseconds, .min_excluded = true}},
      {"deadline_ms",
       kNumber,
       "",
       "Milliseconds after which the request ends with an error.",
       {.min = 0, .max = kMaxMilliseconds, .min_excluded = true}},
      {"cache_salt", kString, "", "Only requests with the same salt share cached tokens."},
      {"extra_key", kString, "", "As `cache_salt`, and combined with it."},
      {"lora_path", kString, "",
       "Name of a loaded adapter; by default the one that `model` names."},
  });
  static constexpr auto kCacheNames = field_table({
      kScheduling["cache_salt"],
      kScheduling["extra_key"],
  });
  static constexpr auto kSampling = field_table({
      {"temperature",
       kNumber,
       "",
       "Spread of the draws, 0 for the most likely token; by default the model's.",
       {.min = 0}},
      {"top_p",
       kNumber,
       "",
       "Draws from the most likely tokens of this probability; by default the model's.",
       {.min = 0, .max = 1}},
      {"min_p",
       kNumber,
       "",
       "Excludes tokens less likely than this share of the best; by default the model's.",
       {.min = 0, .max = 1}},
      {"top_k",
       kInteger,
       "",
       "Draws from this many tokens, 0 or -1 for all; by default the model's.",
       {.min = -1}},
      {"frequency_penalty",
       kNumber,
       "",
       "Lowers a token's logit by this for each time it was drawn; by default the model's.",
       {.min = -2, .max = 2}},
      {"presence_penalty",
       kNumber,
       "",
       "Lowers a token's logit by this once it was drawn; by default the model's.",
       {.min = -2, .max = 2}},
      {"repetition_penalty",
       kNumber,
       "",
       "Divides the logits of tokens that occur by this; by default the model's.",
       {.min = request::kMinRepetitionPenalty, .max = request::kMaxRepetitionPenalty}},
      {"logit_bias", kObject, "", "Token ids and what to add to their logits, -100 to 100."},
      {"stop", kStrings, "", "Texts that end the answer, which does not show them."},
      {"stop_regex", kStrings, "", "Regular expressions that end the answer."},
      {"stop_token_ids", kTokenIds, "", "Tokens that end the answer."},
      {"ignore_eos", kBoolean, "false", "Goes on after the model's end token."},
      {"include_stop_str_in_output", kBoolean, "false", "Shows the text that ended the answer."},
      {"no_stop_trim", kBoolean, "false", "As `include_stop_str_in_output`."},
      {"stream_interval",
       kInteger,
       "",
       "Tokens between two events of a stream; by default the server's.",
       {.min = 1}},
      {"skip_special_tokens", kBoolean, "true", "Leaves special tokens out of the text."},
      {"spaces_between_special_tokens", kBoolean, "true", "Checked; it has no effect here."},
  });
  static constexpr auto kChoices = field_table({
      {"n",
       kInteger,
       "1",
       "Number of answers to each prompt.",
       {.min = 1, .max = request::kMaxChoices}},
  });
  static constexpr auto kLimits = field_table({
      {"max_tokens", kInteger, "", "Most tokens of the answer, -1 for all that fit.", {.min = -1}},
      {"max_completion_tokens", kInteger, "", "The newer name of `max_tokens`.", {.min = -1}},
      {"min_tokens", kInteger, "0", "Tokens before the answer may end.", {.min = 0}},
      {"seed", kInteger, "", "Seed of the draws, -1 for a random one, which is the default."},
  });
  static constexpr auto kNativeLimits = field_table({
      {"max_new_tokens",
       kInteger,
       "128",
       "Most tokens of the answer, -1 for all that fit.",
       {.min = -1}},
      {"min_new_tokens", kInteger, "0", "Tokens before the answer may end.", {.min = 0}},
      {"sampling_seed", kInteger, "", "Seed of the draws, -1 for a random one."},
  });

  // ---- The form of an answer, and its reasoning ----

  static constexpr auto kNamedSchema = field_table({
      {"schema", kObject, "", "The JSON Schema; true and false are schemas, too."},
  });
  static constexpr auto kResponseFormat = field_table({
      {.name = "type",
       .about = "Which form the answer has.",
       .choices = "text, json_object, json_schema, structural_tag",
       .required = true},
      {"json_schema", kObject, "", "The schema of the type json_schema.", {}, kNamedSchema},
  });
  static constexpr auto kStructuredOutputs = field_table({
      {"json", kStringOrObject, "", "JSON Schema of the answer."},
      {"regex", kString, "", "Regular expression of the whole answer."},
      {"grammar", kString, "", "EBNF grammar of the answer."},
      {"structural_tag", kStringOrObject, "", "Text with parts of a given form."},
      {"choice", kStrings, "", "The answers that are allowed, 1 to 1024."},
      {"json_object", kBoolean, "false", "The answer is any JSON object."},
  });
  static constexpr auto kForm = field_table({
      {"response_format", kObject, "", "Form of the answer.", {}, kResponseFormat},
      {"json_schema", kStringOrObject, "", "JSON Schema of the answer."},
      {"regex", kString, "", "Regular expression of the whole answer."},
      {"ebnf", kString, "", "EBNF grammar of the answer."},
      {"structural_tag", kStringOrObject, "", "Text with parts of a given form."},
      {"guided_json", kStringOrObject, "", "As `json_schema`."},
      {"guided_regex", kString, "", "As `regex`."},
      {"guided_grammar", kString, "", "As `ebnf`."},
      {"guided_choice", kStrings, "", "The answers that are allowed, 1 to 1024."},
      {"structured_outputs", kObject, "", "Form of the answer.", {}, kStructuredOutputs},
  });
  static constexpr auto kBudget = field_table({
      {"thinking_budget", kInteger, "", "As `max_thinking_tokens`.", {.min = 0}},
  });
  static constexpr auto kReasoningBudget = field_table({
      {"max_tokens", kInteger, "", "As `max_thinking_tokens`.", {.min = 0}},
  });
  static constexpr auto kReasoningSwitch = field_table({
      {"enabled", kBoolean, "", "Whether to reason; by default as the chat template has it."},
      {"effort", kStringOrNumber, "", "As `reasoning_effort`."},
  });
  static constexpr auto kReasoning = joined(kReasoningBudget, kReasoningSwitch);
  static constexpr auto kThinking = field_table({
      {"max_thinking_tokens", kInteger, "", "Most tokens of reasoning.", {.min = 0}},
      {"custom_params", kObject, "", "Another place for the budget.", {}, kBudget},
      {"reasoning", kObject, "", "How long to reason.", {}, kReasoningBudget},
      {"chat_template_kwargs", kObject, "", "Variables of the chat template.", {}, kBudget},
  });

  // ---- Chats ----

  // For chats: their bodies may have more of `reasoning` than the budget that /generate reads.
  // Their prompts read all of it except the budget.
  static constexpr auto kChatReasoning = field_table({
      {"reasoning", kObject, "", "Whether and how long to reason.", {}, kReasoning},
  });
  static constexpr auto kTemplateInputs = field_table({
      {"reasoning", kObject, "", "Whether to reason.", {}, kReasoningSwitch},
      {"chat_template_kwargs", kObject, "", "Variables of the chat template."},
  });
  static constexpr auto kTemplate = field_table({
      {"reasoning_effort", kStringOrNumber, "",
       "How long to reason: none, minimal, low, medium, high, xhigh, max, or 0 to 0.99."},
      {"continue_final_message", kBoolean, "false", "Continues the last message."},
      {"add_generation_prompt", kBoolean, "true", "Opens a message of the assistant."},
  });
  static constexpr auto kTools = field_table({
      {"tools", kObjects, "", "Functions that the model may call."},
      {"tool_choice", kStringOrObject, "\"auto\"",
       "Which tool must be called: none, auto, required, or one by its name."},
      {"parallel_tool_calls", kBoolean, "true", "Allows several calls in one answer."},
  });
  static constexpr auto kChatInput = field_table({
      {"messages", kObjects, "", "The conversation: objects with `role` and `content`."},
      {"input_ids", kTokenIds, "", "The prompt as token ids, instead of messages."},
  });
  static constexpr auto kChat = field_table({
      {"separate_reasoning", kBoolean, "true", "Puts reasoning into a field of its own."},
      {"stream_reasoning", kBoolean, "true", "Streams reasoning; false sends it whole."},
      {"logprobs", kBoolean, "false", "Adds the logprobs of the answer's tokens."},
      {"top_logprobs",
       kInteger,
       "0",
       "Alternatives shown of each token; needs `logprobs`.",
       {.min = 0, .max = request::kMaxTopLogprobs}},
      {"return_prompt_token_ids", kBoolean, "",
       "Adds the ids of the prompt; by default where `return_token_ids` is true."},
      {"modalities", kList, "[\"text\"]", "Kinds of answers: text alone."},
  });

  // ---- /v1/completions ----

  static constexpr auto kCompletions = field_table({
      {.name = "prompt",
       .type = kPrompts,
       .about = "Text to continue, or several, as texts or as token ids.",
       .required = true},
      {"suffix", kString, "\"\"", "Text that follows: the answer fills the gap between the two."},
      {"echo", kBoolean, "false", "Shows the prompt before its continuation."},
      {"best_of",
       kInteger,
       "",
       "Answers drawn for each prompt, of which the `n` likeliest are shown.",
       {.min = 1, .max = request::kMaxChoices}},
      {"logprobs",
       kInteger,
       "",
       "Alternatives shown of each token; none are shown by default.",
       {.min = 0, .max = request::kMaxTopLogprobs}},
      {"max_tokens",
       kInteger,
       "16",
       "Most tokens of the answer, -1 for all that fit.",
       {.min = -1}},
  });

  // ---- /generate ----

  static constexpr auto kSamplingParams =
      joined(kSampling, kChoices, kNativeLimits, kForm, kThinking);
  static constexpr auto kSession = field_table({
      {.name = "id", .about = "The session's id.", .required = true},
      {"rid", kString, "", "The turn to go on from; by default a new first turn."},
      {"offset", kInteger, "",
       "Tokens kept of that turn; negative: without so many at its end; 0: all."},
      {"replace", kBoolean, "false", "Forgets first the turns that went on from that one."},
      {"drop_previous_output", kBoolean, "false", "Leaves that turn's answer out."},
  });
  static constexpr auto kGenerate = field_table({
      {"text", kStrings, "", "Text to continue, or several; instead of `input_ids`."},
      {"input_ids", kTokenPrompts, "", "Token ids to continue, or several lists."},
      {.name = "rid", .about = "Id of the request, or one of each prompt.", .per_prompt = true},
      {"stream", kBoolean, "false", "Sends the answer as events while it is drawn."},
      {"no_logs", kBoolean, "false", "Keeps the request out of the request log."},
      {.name = "sampling_params",
       .type = kObject,
       .about = "How tokens are drawn.",
       .members = kSamplingParams,
       .per_prompt = true},
      {.name = "return_logprob",
       .type = kBoolean,
       .preset = "false",
       .about = "Adds the logprobs of tokens.",
       .per_prompt = true},
      {.name = "top_logprobs_num",
       .type = kInteger,
       .preset = "0",
       .about = "Alternatives shown of each token.",
       .range = {.min = 0, .max = request::kMaxTopLogprobs},
       .per_prompt = true},
      {.name = "logprob_start_len",
       .type = kInteger,
       .preset = "-1",
       .about = "First token of the prompt with a logprob, -1 for none.",
       .range = {.min = -1},
       .per_prompt = true},
      {"token_ids_logprob", kList, "", "Tokens whose logprobs are shown at every position."},
      {"return_text_in_logprobs", kBoolean, "false", "Shows tokens by their texts, too."},
      {"return_prompt_token_ids", kBoolean, "false", "Adds the ids of the prompt."},
      {"require_reasoning", kBoolean, "false", "The form of the answer begins after reasoning."},
      {"session_params", kObject, "", "Goes on with a session.", {}, kSession},
      kScheduling["user"],
      {"tenant", kString, "", "Another name of `user`."},
  });
  static constexpr auto kPromptScheduling = per_prompt(kScheduling);
  static constexpr auto kVertex = field_table({
      {.name = "instances",
       .type = kObjects,
       .about = "Objects with `text` or `input_ids`.",
       .required = true},
      {"parameters", kObject, "", "Fields of /generate for all instances."},
      {"no_logs", kBoolean, "false", "Keeps the request out of the request log."},
  });

  // ---- /v1/responses ----

  static constexpr auto kTextFormat = field_table({
      {.name = "type",
       .about = "Which form the answer has.",
       .choices = "text, json_object, json_schema"},
      {"name", kString, "", "Name of the schema."},
      {"schema", kObject, "", "JSON Schema of the answer."},
      {"strict", kBoolean, "", "Answers are always held to the schema."},
      {"description", kString, "", "What the answer is for."},
  });
  static constexpr auto kText = field_table({
      {"format", kObject, "", "Form of the answer.", {}, kTextFormat},
  });
  static constexpr auto kResponsesPrompt = field_table({
      {.name = "input",
       .type = kStringOrList,
       .about = "The user's text, or the items of a conversation.",
       .required = true},
      {"instructions", kString, "", "The system's message."},
      {"previous_response_id", kString, "", "The response that this one goes on from."},
      {"text", kObject, "", "Form of the answer.", {}, kText},
      {"tools", kObjects, "", "Functions, custom tools and namespaces the model may call."},
      {.name = "truncation",
       .preset = "\"disabled\"",
       .about = "Taken; inputs that do not fit are always errors.",
       .choices = "auto, disabled"},
      {"metadata", kObject, "{}", "Up to 16 texts that the response repeats."},
      {"top_logprobs",
       kInteger,
       "0",
       "Alternatives shown of each token, with their logprobs.",
       {.min = 0, .max = request::kMaxTopLogprobs}},
      {"include", kStrings, "", "message.output_text.logprobs adds logprobs."},
  });
  static constexpr auto kResponses = field_table({
      {"max_output_tokens",
       kInteger,
       "",
       "Most tokens of the answer, -1 for all that fit.",
       {.min = -1}},
      {"store", kBoolean, "true", "Keeps the response for an hour."},
      {"background", kBoolean, "false", "Answers at once; the response is fetched by its id."},
  });

  // ---- /v1/messages ----

  static constexpr auto kMetadata = field_table({
      {"user_id", kString, "", "Tenant of the request."},
  });
  static constexpr auto kToolChoice = field_table({
      {.name = "type",
       .about = "Whether a tool is called.",
       .choices = "auto, any, tool, none",
       .required = true},
      {"name", kString, "", "The tool of the type tool."},
      {"disable_parallel_tool_use", kBoolean, "false", "Allows one call alone."},
  });
  static constexpr auto kThinkingSwitch = field_table({
      {.name = "type",
       .about = "Whether to reason.",
       .choices = "enabled, disabled, adaptive",
       .required = true},
      {"budget_tokens", kInteger, "", "Most tokens of reasoning.", {.min = 1}},
  });
  static constexpr auto kOutputFormat = field_table({
      {.name = "type", .about = "json_schema alone.", .choices = "json_schema", .required = true},
      {.name = "schema", .type = kObject, .about = "The JSON Schema.", .required = true},
  });
  static constexpr auto kOutputConfig = field_table({
      {"format", kObject, "", "Form of the answer.", {}, kOutputFormat},
      {"effort", kString, "", "How long to reason, where the chat template reads it."},
  });
  static constexpr auto kMessagesPrompt = field_table({
      {"system", kStringOrList, "", "The system's message."},
      {.name = "messages",
       .type = kObjects,
       .about = "The conversation: objects with `role` and `content`.",
       .required = true},
      {"tools", kObjects, "", "Tools that the model may call."},
      {"tool_choice", kObject, "", "Whether and which tool is called.", {}, kToolChoice},
      {"thinking", kObject, "", "Whether and how long to reason.", {}, kThinkingSwitch},
      {"output_config", kObject, "", "Form of the answer, and effort.", {}, kOutputConfig},
      {"output_format",
       kObject,
       "",
       "The older name of `output_config.format`.",
       {},
       kOutputFormat},
      {"stop_sequences", kStrings, "", "Texts that end the answer."},
      {"metadata", kObject, "", "Who asks.", {}, kMetadata},
  });
  static constexpr auto kMessages = field_table({
      {.name = "max_tokens",
       .type = kInteger,
       .about = "Most tokens of the answer.",
       .range = {.min = 1},
       .required = true},
  });

  // ---- Ollama ----

  static constexpr auto kOllamaOptions = field_table({
      kSampling["temperature"],
      kSampling["top_p"],
      kSampling["min_p"],
      kSampling["stop"],
      kSampling["presence_penalty"],
      kSampling["frequency_penalty"],
      renamed(kSampling["repetition_penalty"], "repeat_penalty"),
      kLimits["seed"],
      {"top_k", kInteger, "", "Draws from this many tokens; 0 and less for all."},
      {"num_predict", kInteger, "", "Most tokens of the answer; 0 and less for all that fit."},
  });
  static constexpr auto kOllama = field_table({
      {"stream", kBoolean, "true", "Sends the answer as lines while it is drawn."},
      {"options", kObject, "", "How tokens are drawn.", {}, kOllamaOptions},
      {"format", kStringOrObject, "\"\"", "\"json\", or the JSON Schema of the answer."},
      {"think", kBooleanOrString, "", "Whether to reason, or a level as in `reasoning_effort`."},
      {"logprobs", kBoolean, "false", "Adds the logprobs of the answer's tokens."},
      {"images", kList, "[]", "Empty: the model takes text only."},
  });
  static constexpr auto kOllamaChat = field_table({
      {"messages", kObjects, "[]", "The conversation; without one the answer is empty."},
  });
  static constexpr auto kOllamaGenerate = field_table({
      {"prompt", kString, "\"\"", "The user's message, or the text to continue."},
      {"suffix", kString, "\"\"", "Text that follows: the answer fills the gap between the two."},
      {"system", kString, "\"\"", "The system's message."},
      {"raw", kBoolean, "false", "Continues `prompt` without a chat template."},
  });
  static constexpr auto kShow = field_table({
      {"name", kString, "", "The older name of `model`."},
  });

  // ---- Texts and tokens ----

  static constexpr auto kTokenize = field_table({
      {"prompt", kStrings, "", "Text, or texts; instead of `messages`."},
      {"add_special_tokens", kBoolean, "true", "Adds the tokens that begin every text."},
  });
  static constexpr auto kDetokenize = field_table({
      {.name = "tokens", .type = kList, .about = "Token ids, or lists of them.", .required = true},
      {"skip_special_tokens", kBoolean, "true", "Leaves special tokens out of the text."},
  });
  static constexpr auto kParse = field_table({
      {.name = "text", .about = "What the model wrote.", .required = true},
  });
  static constexpr auto kParseCalls = field_table({
      {"tool_call_parser", kString, "\"auto\"", "Format of the calls; by default the model's."},
      {.name = "tools",
       .type = kObjects,
       .about = "Functions that may be called.",
       .required = true},
  });
  static constexpr auto kParseReasoning = field_table({
      {"reasoning_parser", kString, "\"auto\"", "Format of reasoning; by default the model's."},
  });

  // ---- Files, batches, sessions ----

  static constexpr auto kUpload = field_table({
      {.name = "file", .type = kFile, .about = "The file.", .required = true},
      {.name = "purpose",
       .about = "What the file is for.",
       .choices = "batch, user_data, assistants",
       .required = true},
  });
  static constexpr auto kBatch = field_table({
      {.name = "input_file_id", .about = "Id of the file of requests.", .required = true},
      {.name = "endpoint",
       .about = "Route that answers them.",
       .choices = "/v1/chat/completions, /v1/completions, /v1/responses",
       .required = true},
      {.name = "completion_window",
       .preset = "\"24h\"",
       .about = "Time for the batch.",
       .choices = "24h"},
      {"metadata", kObject, "{}", "Up to 16 texts that the batch repeats."},
  });
  static constexpr auto kOpenSession = field_table({
      {.name = "capacity_of_str_len",
       .type = kInteger,
       .about = "Most tokens of a turn's prompt.",
       .range = {.min = 1},
       .required = true},
      {"timeout",
       kInteger,
       "3600",
       "Seconds without a request after which the session is forgotten.",
       {.min = 1, .max = 86400}},
      {"session_id", kString, "", "Id of the session; by default a new one."},
  });
  static constexpr auto kCloseSession = field_table({
      {.name = "session_id", .about = "Id of the session.", .required = true},
  });

  // ---- Operators ----

  static constexpr auto kAbort = field_table({
      {"rid", kString, "", "Id of the request to end."},
      {"abort_all", kBoolean, "false", "Ends all requests."},
  });
  static constexpr auto kPause = field_table({
      {.name = "mode",
       .preset = "\"abort\"",
       .about = "What becomes of running requests.",
       .choices = "abort, retract, in_place"},
  });
  static constexpr auto kWeightVersion = field_table({
      {.name = "new_version", .about = "Name of the weights.", .required = true},
      {"abort_all_requests", kBoolean, "true", "Ends what runs and waits."},
  });
  static constexpr auto kUpdateWeights = field_table({
      {.name = "model_path", .about = "Folder of the new weights.", .required = true},
      {"load_format", kString, "\"auto\"", "As --load-format."},
      {"weight_version", kString, "", "New name of the weights; by default the old one."},
      {"abort_all_requests", kBoolean, "false", "Ends what runs and waits."},
      {"flush_cache", kBoolean, "true", "Empties the prefix cache."},
      {"keep_pause", kBoolean, "false", "Pauses the engine afterwards."},
      {"is_async", kBoolean, "true", "Checked; weights are always read beside requests."},
      {"recapture_cuda_graph", kBoolean, "false", "Checked; graphs find the new weights."},
  });
  static constexpr auto kUnloadAdapter = field_table({
      {.name = "lora_name", .about = "Name of the adapter.", .required = true},
  });
  static constexpr auto kLoadAdapter = field_table({
      kUnloadAdapter["lora_name"],
      {.name = "lora_path", .about = "Folder of the adapter.", .required = true},
      {"load_inplace", kBoolean, "false", "Replaces a loaded adapter of this name."},
      {"pinned", kBoolean, "true", "Checked; adapters stay loaded until they are unloaded."},
  });
  static constexpr auto kProfile = field_table({
      {"num_steps",
       kInteger,
       "",
       "Steps to record; by default until /stop_profile.",
       {.min = 1, .max = kMaxRecordedSteps}},
      {"profile_prefix", kString, "\"\"", "Beginning of the file's name."},
      {"profile_id", kString, "", "Id in the file's name; by default the time."},
      {"output_dir", kString, "\"\"", "Folder below --profile-path."},
  });
  static constexpr auto kServerArgs = field_table({
      {.name = "log_level",
       .about = "Least level that is logged.",
       .choices = "debug, info, warning, error"},
  });
  static constexpr auto kLogging = field_table({
      kServerArgs["log_level"],
      {"log_requests", kBoolean, "", "Whether requests are logged."},
      {"log_requests_level", kInteger, "", "How much of them.", {.min = 0, .max = 3}},
      {.name = "log_requests_format", .about = "How their lines look.", .choices = "text, json"},
  });
  static constexpr auto kInternalState = field_table({
      {.name = "server_args",
       .type = kObject,
       .about = "Settings to change.",
       .members = kServerArgs,
       .required = true},
  });
  static constexpr auto kSlowDown = field_table({
      {"forward_sleep_time", kNumber, "0", "Seconds before each step.", {.min = 0, .max = 60}},
  });
  static constexpr auto kInspect = field_table({
      {"max_requests", kInteger, "100", "Requests shown.", {.min = 0, .max = 1000}},
      {"max_nodes", kInteger, "500", "Nodes of the prefix tree shown.", {.min = 0, .max = 2000}},
      {"max_node_tokens", kInteger, "24", "Tokens shown of each.", {.min = 0, .max = 64}},
      {"prompt_token_ids", kTokenIds, "[]", "Prompt whose cached part is shown."},
  });
};

}  // namespace heddle::server
