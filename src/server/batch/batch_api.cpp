// SPDX-License-Identifier: Apache-2.0
#include "server/batch/batch_api.h"

#include <exception>
#include <optional>
#include <utility>
#include <variant>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/printable.h"
#include "server/call/body_fields.h"
#include "server/call/call_fields.h"
#include "server/call/field_reader.h"
#include "server/http/json_text.h"
#include "server/http/key_ring.h"
#include "server/http/list_page.h"
#include "server/http/multipart_form.h"
#include "server/http/routes.h"

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;

Json file_json(const StoredFile& file) {
  return {{"id", file.id},           {"object", "file"},
          {"bytes", file.num_bytes}, {"created_at", file.created},
          {"filename", file.name},   {"purpose", file.purpose},
          {"status", "processed"}};
}

ApiError no_such(std::string_view kind, std::string_view id) {
  return {.status = 404,
          .code = fmt::format("{}_not_found", kind),
          .message = fmt::format("There is no {} `{}`.", kind, printable(id, 128)),
          .param = fmt::format("{}_id", kind)};
}

// The error for a file that the store or the disk refused; the request itself is valid.
ApiError upload_error(const Status& status) {
  ApiError error =
      storage_error(status, fmt::format("The file was not kept: {}.", status.message()));
  error.param = "file";
  return error;
}

HttpResponse answer_page(const HttpRequest& request, const std::variant<Json, ApiError>& page) {
  if (const auto* const error = std::get_if<ApiError>(&page)) {
    return error_response(*error, request);
  }
  return json_response(std::get<Json>(page));
}

// An uploaded form, with the file as it will be stored.
struct Upload {
  StoredFile file;
  std::string_view content;
};

std::variant<Upload, ApiError> read_upload(const HttpRequest& request, int64_t now) {
  const auto form = parse_multipart_form(request.header("content-type"), request.body);
  if (const auto* const error = std::get_if<ApiError>(&form)) return *error;
  const FormPart* file = nullptr;
  std::string_view purpose;
  for (const FormPart& part : std::get<std::vector<FormPart>>(form)) {
    if (part.name == Body::kUpload["file"].name) file = &part;
    if (part.name == Body::kUpload["purpose"].name) purpose = part.content;
  }
  if (file == nullptr) return missing_parameter("file");
  if (purpose.empty()) return missing_parameter("purpose");
  if (purpose != "batch" && purpose != "user_data" && purpose != "assistants") {
    return invalid_value("purpose", fmt::format("`purpose` is \"{}\"; this server takes batch, and "
                                                "user_data or assistants for texts that messages "
                                                "name by their ids.",
                                                printable(purpose, 40)));
  }
  if (file->content.empty()) return invalid_value("file", "The file is empty.");
  return Upload{.file = {.id = {},
                         .name = printable(file->file_name.empty() ? "file" : file->file_name,
                                           FileStore::kMaxNameBytes),
                         .purpose = std::string(purpose),
                         .holder = holder_of(request.key),
                         .created = now},
                .content = file->content};
}

class FileContent final : public BodySource {
 public:
  explicit FileContent(std::FILE* stream) : stream_(stream) {}

  ~FileContent() override { std::fclose(stream_); }

  FileContent(const FileContent&) = delete;
  FileContent& operator=(const FileContent&) = delete;

  bool next(std::string& piece) override {
    piece.resize(kBodyPieceBytes);
    piece.resize(std::fread(piece.data(), 1, piece.size(), stream_));
    return piece.size() == kBodyPieceBytes;
  }

 private:
  std::FILE* const stream_;
};

std::variant<BatchOrder, ApiError> read_batch_order(const HttpRequest& request) {
  Json object;
  if (auto error = parse_json_object(request.body, object)) return *error;
  FieldReader fields(object);
  BatchOrder order{.input_file_id = fields.string(Body::kBatch["input_file_id"]).value_or(""),
                   .endpoint = fields.string(Body::kBatch["endpoint"]).value_or(""),
                   .holder = holder_of(request.key)};
  const std::string window = fields.string_or_preset(Body::kBatch["completion_window"]);
  const Json* const metadata = read_metadata(fields);
  if (fields.error()) return *fields.error();
  if (order.input_file_id.empty()) return missing_parameter("input_file_id");
  if (order.endpoint.empty()) return missing_parameter("endpoint");
  if (!is_batch_endpoint(order.endpoint)) {
    return invalid_value("endpoint", fmt::format("`endpoint` is \"{}\"; batches are for "
                                                 "/v1/chat/completions, /v1/completions and "
                                                 "/v1/responses.",
                                                 printable(order.endpoint, 100)));
  }
  if (window != "24h") {
    return invalid_value("completion_window", "`completion_window` must be 24h.");
  }
  if (metadata != nullptr) order.metadata = *metadata;
  return order;
}

// Removes `suffix` from the end of `id`. Returns false if it is not there.
bool take_suffix(std::string& id, std::string_view suffix) {
  if (!id.ends_with(suffix)) return false;
  id.resize(id.size() - suffix.size());
  return true;
}

}  // namespace

void BatchApi::files(std::shared_ptr<Exchange> exchange) {
  if (exchange->request().method == "POST") {
    upload(std::move(exchange));
  } else {
    exchange->respond(list_files(exchange->request()));
  }
}

void BatchApi::upload(std::shared_ptr<Exchange> exchange) {
  const auto store = [this, now = host_.unix_time()](const HttpRequest& request) {
    const auto upload = read_upload(request, now);
    if (const auto* const error = std::get_if<ApiError>(&upload)) {
      return error_response(*error, request);
    }
    const auto& [file, content] = std::get<Upload>(upload);
    const Result<StoredFile> stored = files_->add(file, content);
    return stored.ok() ? json_response(file_json(*stored))
                       : error_response(upload_error(stored.status()), request);
  };
  const auto work = [this, store, exchange]() mutable {
    HttpResponse answer;
    try {
      answer = store(exchange->request());
    } catch (const std::exception& failure) {  // mostly out of memory
      const HttpRequest& request = exchange->request();
      answer =
          error_response(error_from_status(internal_error(failure.what()), request.id), request);
    }
    // The last reference to an exchange must end on the I/O thread.
    host_.threads.post([exchange = std::move(exchange), answer = std::move(answer)]() mutable {
      exchange->release_body();
      exchange->respond(std::move(answer));
    });
  };
  if (!host_.threads.run_on_worker(work)) {
    exchange->respond(error_response({.status = 503,
                                      .code = "queue_full",
                                      .message = "Too many requests wait to be read. Retry later.",
                                      .retry_after_seconds = 4},
                                     exchange->request()));
  }
}

HttpResponse BatchApi::list_files(const HttpRequest& request) const {
  const auto purpose = request.query_value("purpose");
  const auto newest_first = read_newest_first(request);
  if (const auto* const error = std::get_if<ApiError>(&newest_first)) {
    return error_response(*error, request);
  }
  Json entries = Json::array();
  for (const StoredFile& file : files_->list(holder_of(request.key))) {
    if (!purpose || *purpose == file.purpose) entries.push_back(file_json(file));
  }
  return answer_page(request, page_of(request, entries,
                                      {.reversed = std::get<bool>(newest_first),
                                       .default_limit = 10000,
                                       .max_limit = 10000}));
}

void BatchApi::one_file(std::shared_ptr<Exchange> exchange) {
  const HttpRequest& request = exchange->request();
  std::string id = request.path.substr(kFilePrefix.size());
  const bool content = request.method != "DELETE" && take_suffix(id, "/content");
  const auto file = files_->find(id, holder_of(request.key));
  if (!file) {
    exchange->respond(error_response(no_such("file", id), request));
  } else if (content) {
    send_content(std::move(exchange), id);
  } else if (request.method == "DELETE") {
    exchange->respond(json_response(
        {{"id", id}, {"object", "file"}, {"deleted", files_->remove(id, holder_of(request.key))}}));
  } else {
    exchange->respond(json_response(file_json(*file)));
  }
}

void BatchApi::send_content(std::shared_ptr<Exchange> exchange, const std::string& id) {
  std::FILE* const stream = files_->open_for_reading(id);
  if (stream == nullptr) {
    exchange->respond(error_response(no_such("file", id), exchange->request()));
    return;
  }
  exchange->open_body({.content_type = "application/octet-stream", .headers = {}, .body = {}});
  send_body(host_.threads, std::move(exchange), std::make_unique<FileContent>(stream));
}

void BatchApi::batches(const std::shared_ptr<Exchange>& exchange) {
  if (exchange->request().method == "POST") {
    create_batch(exchange);
  } else {
    exchange->respond(list_batches(exchange->request()));
  }
}

void BatchApi::create_batch(const std::shared_ptr<Exchange>& exchange) {
  const HttpRequest& request = exchange->request();
  auto order = read_batch_order(request);
  if (const auto* const error = std::get_if<ApiError>(&order)) {
    return exchange->respond(error_response(*error, request));
  }
  auto& wanted = std::get<BatchOrder>(order);
  if (!files_->find(wanted.input_file_id, wanted.holder)) {
    ApiError error = no_such("file", wanted.input_file_id);
    error.param = "input_file_id";
    return exchange->respond(error_response(error, request));
  }
  runner_.create(std::move(wanted), [exchange](const BatchRunner::Shown& shown) {
    exchange->respond(answer_page(exchange->request(), shown));
  });
}

HttpResponse BatchApi::list_batches(const HttpRequest& request) const {
  return answer_page(request, page_of(request, runner_.list(holder_of(request.key)), {}));
}

void BatchApi::one_batch(std::shared_ptr<Exchange> exchange) {
  const HttpRequest& request = exchange->request();
  std::string id = request.path.substr(kBatchPrefix.size());
  const bool posted = request.method == "POST";
  const bool cancels = take_suffix(id, "/cancel");
  const auto answer = [exchange, id](const BatchRunner::Shown& shown) {
    const auto* const batch = std::get_if<Json>(&shown);
    exchange->respond(batch != nullptr && batch->is_null()
                          ? error_response(no_such("batch", id), exchange->request())
                          : answer_page(exchange->request(), shown));
  };
  if (posted != cancels) {
    answer(Json());
  } else if (cancels) {
    runner_.cancel(id, holder_of(request.key), answer);
  } else {
    answer(runner_.show(id, holder_of(request.key)));
  }
}

}  // namespace heddle::server
