// SPDX-License-Identifier: Apache-2.0
// BatchApi: the routes of OpenAI's files and batches.
//
//   POST, GET /v1/files            GET, DELETE /v1/files/ID        GET /v1/files/ID/content
//   POST, GET /v1/batches          GET /v1/batches/ID              POST /v1/batches/ID/cancel
//
// Files and batches belong to the key that created them; other keys cannot see them.
//
// Threading: confined to the I/O thread.
#pragma once

#include <memory>
#include <string>

#include "server/batch/batch_runner.h"
#include "server/http/exchange.h"
#include "server/storage/file_store.h"

namespace heddle::server {

class BatchApi {
 public:
  // Restores the files and batches that an earlier server left in the store.
  BatchApi(BatchHost host, std::unique_ptr<FileStore> files)
      : host_(host), files_(std::move(files)), runner_(std::move(host), *files_) {
    runner_.restore();
  }

  // Resumes the batches of earlier servers. Called once the engine exists.
  void resume() { runner_.resume(); }

  // Answer a request to one of the routes, whose method the route allows.
  void files(std::shared_ptr<Exchange> exchange);

  [[nodiscard]] const FileStore& file_store() const { return *files_; }

  void one_file(std::shared_ptr<Exchange> exchange);
  void batches(const std::shared_ptr<Exchange>& exchange);
  void one_batch(std::shared_ptr<Exchange> exchange);

 private:
  void upload(std::shared_ptr<Exchange> exchange);
  [[nodiscard]] HttpResponse list_files(const HttpRequest& request) const;
  void send_content(std::shared_ptr<Exchange> exchange, const std::string& id);
  void create_batch(const std::shared_ptr<Exchange>& exchange);
  [[nodiscard]] HttpResponse list_batches(const HttpRequest& request) const;

  const BatchHost host_;
  const std::unique_ptr<FileStore> files_;
  BatchRunner runner_;
};

}  // namespace heddle::server
