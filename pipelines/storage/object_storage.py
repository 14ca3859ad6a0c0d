"""Files on `s3://`: Beam's file system with one client per process, atomic writes, and reads of a single version."""

import io
import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, BinaryIO, cast

from apache_beam.io.aws.clients.s3 import boto3_client
from apache_beam.io.aws.s3filesystem import S3FileSystem
from apache_beam.io.aws.s3io import parse_s3_path
from apache_beam.io.filesystem import CompressionTypes, FileMetadata
from apache_beam.io.filesystemio import Downloader, DownloaderStream, Uploader, UploaderStream
from apache_beam.options.pipeline_options import PipelineOptions, S3Options

_CLIENT_FLAGS = (
    *("endpoint_url", "region_name", "access_key_id", "secret_access_key", "session_token"),
    *("api_version", "verify", "disable_ssl"),
)
_BYTES_PER_READ = 4 << 20
_BYTES_PER_PART = 8 << 20
_BYTES_PER_WRITE = 1 << 20
_MAX_DELETED_AT_ONCE = 1000
_COPY_THREADS = 8


class S3(S3FileSystem):
    """Beam's file system for `s3://`, with its own access to the store.

    Beam makes a new client for each call (a third of a second), cannot write an empty file, and keeps reading from a
    file that was replaced meanwhile. Here a file appears when it is closed, a small file costs one request, and reading
    a file that was replaced after it was opened is an error.

    Raises:
        OSError: from every method, if the store refuses; the message has the path and the store's answer.
    """

    def __init__(self, options: PipelineOptions) -> None:
        """Uses the process's client for the `--s3_...` flags among the options."""
        super().__init__(options)
        self._client = _find_client(options)

    @classmethod
    def scheme(cls) -> str:
        """The name by which Beam finds its file systems; Beam allows only one for `s3`."""
        return "s3 with one client"

    def exists(self, path: str) -> bool:
        """Whether a file of this name exists; S3 has no folders."""
        return _read_head(self._client, path) is not None

    def find(self, path: str) -> FileMetadata | None:
        """Returns the size and date of the file of this name, or None if it does not exist; takes one request.

        Beam's `match` sends two requests, and fails if the file is deleted between them.
        """
        head = _read_head(self._client, path)
        return FileMetadata(path, head["ContentLength"], head["LastModified"].timestamp()) if head else None

    def rename(self, sources: Sequence[str], targets: Sequence[str]) -> None:
        """Copies each file, which replaces its target atomically, then deletes the sources."""
        with ThreadPoolExecutor(_COPY_THREADS) as threads:
            list(threads.map(self._copy_one, sources, targets))
        self.delete(sources)

    def delete(self, paths: Sequence[str]) -> None:
        """Deletes files, in no order; passes over files that do not exist."""
        by_bucket: dict[str, list[str]] = {}
        for path in paths:
            bucket, key = parse_s3_path(path)
            by_bucket.setdefault(bucket, []).append(key)
        for bucket, keys in by_bucket.items():
            for start in range(0, len(keys), _MAX_DELETED_AT_ONCE):
                objects = [{"Key": key} for key in keys[start : start + _MAX_DELETED_AT_ONCE]]
                with _add_path_to_errors(f"s3://{bucket}/{objects[0]['Key']}"):
                    answer = self._client.delete_objects(Bucket=bucket, Delete={"Objects": objects, "Quiet": True})
                for error in answer.get("Errors", []):
                    raise OSError(f"s3://{bucket}/{error['Key']}: not deleted: {error['Code']} {error['Message']}")

    def _list(self, prefix: str) -> Iterator[FileMetadata]:
        bucket, start = parse_s3_path(prefix, object_optional=True)
        with _add_path_to_errors(prefix):
            for page in self._client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=start):
                for found in page.get("Contents", []):
                    path = f"s3://{bucket}/{found['Key']}"
                    yield FileMetadata(path, found["Size"], found["LastModified"].timestamp())

    def _path_open(
        self,
        path: str,
        mode: str,
        mime_type: str = "application/octet-stream",
        compression_type: str = CompressionTypes.UNCOMPRESSED,
    ) -> BinaryIO:
        assert compression_type == CompressionTypes.UNCOMPRESSED
        if mode == "wb":
            stream = UploaderStream(_Upload(self._client, path, mime_type))
            return cast(BinaryIO, io.BufferedWriter(stream, buffer_size=_BYTES_PER_WRITE))
        stream = DownloaderStream(_Download(self._client, path), read_buffer_size=_BYTES_PER_READ)
        return cast(BinaryIO, io.BufferedReader(stream, buffer_size=_BYTES_PER_READ))

    def _copy_one(self, source: str, target: str) -> None:
        (from_bucket, from_key), (to_bucket, to_key) = parse_s3_path(source), parse_s3_path(target)
        with _add_path_to_errors(f"{source} to {target}"):
            self._client.copy({"Bucket": from_bucket, "Key": from_key}, to_bucket, to_key)


class _Download(Downloader):
    """Reads ranges of one version of a file."""

    def __init__(self, client: Any, path: str) -> None:
        head = _read_head(client, path)
        if head is None:
            raise FileNotFoundError(f"{path}: no such file")
        self._client = client
        self._path = path
        self._size, self._version = head["ContentLength"], head["ETag"]

    @property
    def size(self) -> int:
        return int(self._size)

    def get_range(self, start: int, end: int) -> bytes:
        bucket, key = parse_s3_path(self._path)
        with _add_path_to_errors(self._path):
            answer = self._client.get_object(
                Bucket=bucket, Key=key, Range=f"bytes={start}-{end - 1}", IfMatch=self._version
            )
            return bytes(answer["Body"].read())


class _Upload(Uploader):
    """Writes a file: a small file in one request, a large one in parts, which the store joins at the end."""

    def __init__(self, client: Any, path: str, mime_type: str) -> None:
        self._client = client
        self._path = path
        self._type = mime_type
        bucket, key = parse_s3_path(path)
        self._target: dict[str, Any] = {"Bucket": bucket, "Key": key}
        self._waiting = bytearray()
        self._parts: list[dict[str, Any]] = []
        self._upload: dict[str, Any] | None = None
        self._failed = False

    def put(self, data: memoryview) -> None:
        self._waiting += data
        if len(self._waiting) >= _BYTES_PER_PART:
            with self._abort_on_error():
                self._send_part()

    def finish(self) -> None:
        if self._failed:
            raise OSError(f"{self._path}: not written, because sending a part of it failed")
        with self._abort_on_error():
            if self._upload is None:
                self._client.put_object(**self._target, Body=bytes(self._waiting), ContentType=self._type)
                return
            if self._waiting:
                self._send_part()
            self._client.complete_multipart_upload(**self._upload, MultipartUpload={"Parts": self._parts})

    def _send_part(self) -> None:
        if self._upload is None:
            answer = self._client.create_multipart_upload(**self._target, ContentType=self._type)
            self._upload = {**self._target, "UploadId": answer["UploadId"]}
        number = len(self._parts) + 1
        answer = self._client.upload_part(**self._upload, PartNumber=number, Body=bytes(self._waiting))
        self._parts.append({"PartNumber": number, "ETag": answer["ETag"]})
        self._waiting = bytearray()

    @contextmanager
    def _abort_on_error(self) -> Iterator[None]:
        """Aborts the upload if its block fails.

        Closing a stream also sends the rest of its content. If a part was lost before, that must not make a file.
        """
        try:
            with _add_path_to_errors(self._path):
                yield
        except BaseException:
            self._failed = True
            if self._upload is not None:
                self._client.abort_multipart_upload(**self._upload)
                self._upload = None
            raise


_clients: dict[tuple[Any, ...], Any] = {}
_client_lock = threading.Lock()


def _find_client(options: PipelineOptions) -> Any:
    """Returns this process's boto3 client for Beam's `--s3_...` flags; boto3 finds other settings by itself."""
    if boto3_client.boto3 is None:
        raise ModuleNotFoundError("s3:// needs boto3", name="tokenmill[aws]")
    given = options.view_as(S3Options)
    # A forked process must not share its parent's connections, so the process id is part of the key.
    key = (os.getpid(), *(getattr(given, f"s3_{name}") for name in _CLIENT_FLAGS))
    with _client_lock:
        if key not in _clients:
            _clients[key] = boto3_client.Client(options).client
        return _clients[key]


def _read_head(client: Any, path: str) -> dict[str, Any] | None:
    """Returns the store's metadata of a file, or None if it does not exist."""
    bucket, key = parse_s3_path(path)
    with _add_path_to_errors(path):
        try:
            return dict(client.head_object(Bucket=bucket, Key=key))
        except client.exceptions.ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] == 404:
                return None
            raise


@contextmanager
def _add_path_to_errors(path: str) -> Iterator[None]:
    """Raises an OSError with the path for errors of boto3, which name the operation but not the file."""
    # Beam's extra `aws` installs these packages; only users with files on s3:// need it.
    from boto3.exceptions import Boto3Error
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (Boto3Error, BotoCoreError, ClientError) as error:
        raise OSError(f"{path}: {error}") from error
