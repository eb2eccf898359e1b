"""What each path asks of a JSON body, and what is read from it."""

import orjson
import pytest
from gateway_asks import chat, parsed

from aibrix_operator.gateway.request import Request
from aibrix_operator.gateway.verdict import Refuse


def refusal(body, **given):
    refused = parsed(body, **given)
    assert isinstance(refused, Refuse), refused
    return refused


@pytest.mark.acceptance("GW-4")
@pytest.mark.parametrize("body", [b"{", b"", b"[1,2]", b"null", b'"m"', b'{"model":NaN}', b"\xff\xfe{}"])
def test_a_body_that_is_no_json_object_is_refused(body):
    refused = refusal(body)
    assert (refused.status, refused.message) == (400, "error processing request body")
    assert refused.headers == {"x-error-request-body-processing": "true"}


@pytest.mark.acceptance("GW-5")
@pytest.mark.parametrize("members", [{"messages": []}, {"messages": None}, {}], ids=["empty", "null", "absent"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
def test_a_chat_without_messages_is_refused(members, path):
    refused = refusal({"model": "m", **members}, path=path)
    assert (refused.status, refused.param) == (400, "messages")
    assert refused.message == "no messages in the request body"


@pytest.mark.parametrize("messages", ["hi", 5, {"role": "user"}, ["hi"], [None]])
def test_messages_that_are_no_list_of_objects_are_refused(messages):
    assert refusal(chat(messages=messages)).status == 400


@pytest.mark.acceptance("GW-6")
def test_a_response_says_what_is_wrong_with_its_input():
    path = "/v1/responses"
    found = [refusal({"model": "m", **more}, path=path).message for more in ({}, {"input": 5}, {"input": []})]
    assert found == [
        "'input' is a required property",
        "'input' must be a string or an array of input items",
        "'input' array cannot be empty",
    ]


@pytest.mark.parametrize("model", [{}, {"model": None}, {"model": ""}])
def test_a_response_without_model_is_told_so(model):
    assert refusal({"input": "x", **model}, path="/v1/responses").message == "'model' is a required property"


@pytest.mark.acceptance("GW-7")
@pytest.mark.parametrize("prompt", [["a", "b"], [1, 2], 5, None])
def test_a_completion_takes_one_string(prompt):
    refused = refusal({"model": "m", "prompt": prompt}, path="/v1/completions")
    assert (refused.status, refused.param) == (400, "prompt")


def test_a_completion_may_bring_embeddings_of_its_prompt():
    assert isinstance(parsed({"model": "m", "prompt_embeds": "AAAA"}, path="/v1/completions"), Request)


@pytest.mark.parametrize("model", [{}, {"model": None}])
def test_a_chat_without_model_asks_for_the_empty_name(model):
    request = parsed({"messages": [{"content": "x"}], **model})
    assert isinstance(request, Request)
    assert request.model == ""


@pytest.mark.parametrize("name", [5, ["m"], {"m": 1}, True])
def test_a_model_that_is_no_string_is_refused(name):
    assert refusal(chat(name)).param == "model"


@pytest.mark.acceptance("GW-9")
@pytest.mark.parametrize(
    "path", ["/v1/unknown", "/foo", "/v1/chat/completions/", "/V1/chat/completions", "/v1/files", "/v1/batches", "/"]
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_an_unknown_path_is_not_implemented(path, method):
    refused = refusal(chat(), path=path, method=method)
    assert (refused.status, refused.message) == (501, "unknown request path")
    assert orjson.loads(refused.body())["error"]["type"] == "api_error"


@pytest.mark.parametrize("method", ["GET", "HEAD", "DELETE", "PUT", "OPTIONS"])
def test_a_routed_path_is_only_posted_to(method):
    refused = refusal(b"", method=method)
    assert (refused.status, refused.headers["allow"]) == (405, "POST")


@pytest.mark.acceptance("GW-11")
def test_a_query_does_not_hide_the_path_and_is_kept():
    request = parsed(chat(), path="/v1/chat/completions?api-version=1")
    assert request.path == "/v1/chat/completions?api-version=1"


@pytest.mark.acceptance("GW-12")
@pytest.mark.parametrize(
    "given",
    [
        "text", ["a"] * 2048, [1] * 2048, [[1] * 2048] * 3, ["x" * 100_000], [[7]],
        [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "data:"}}],
        [{"text": "a", "image": "b64"}],
    ],
    ids=["string", "2048 strings", "2048 tokens", "lists of 2048", "long", "nested one", "typed parts", "flat parts"],
)  # fmt: skip
def test_embeddings_take_every_form_of_input(given):
    assert isinstance(parsed({"model": "m", "input": given}, path="/v1/embeddings"), Request)


@pytest.mark.acceptance("GW-12")
@pytest.mark.parametrize(
    "given",
    [["a"] * 2049, [1] * 2049, [[1], [1] * 2049], [], 5, ["a", 1], [[1], ["a"]], [True], None],
    ids=["2049 strings", "2049 tokens", "a list of 2049", "empty", "number", "mixed", "words", "bool", "null"],
)
def test_embeddings_of_another_form_or_too_many_are_refused(given):
    refused = refusal({"model": "m", "input": given}, path="/v1/embeddings")
    assert (refused.status, refused.param) == (400, "input")


@pytest.mark.acceptance("GW-12")
def test_embeddings_are_not_streamed():
    refused = refusal({"model": "m", "input": "a", "stream": True}, path="/v1/embeddings")
    assert (refused.status, refused.message, refused.param) == (400, "stream not supported for embeddings", "stream")


def test_embeddings_of_a_conversation_are_routed():
    body = {"model": "m", "messages": [{"role": "user", "content": "hello"}], "stream": False}
    assert parsed(body, path="/v1/embeddings").text_of() == "hello"


@pytest.mark.acceptance("GW-13")
@pytest.mark.parametrize("name", ["model", "query", "documents"])
def test_a_rerank_needs_all_three(name):
    body = {"model": "m", "query": "q", "documents": ["d"]}
    del body[name]
    refused = refusal(body, path="/v1/rerank")
    assert (refused.status, refused.param, refused.message) == (400, name, f"'{name}' is a required property")


def test_a_rerank_takes_a_list_of_documents():
    body = {"model": "m", "query": "q", "documents": "d"}
    assert refusal(body, path="/v1/rerank").message == "'documents' must be a list"


@pytest.mark.parametrize("given", [None, 5, [], [1], {"a": 1}])
def test_a_classification_takes_a_string_or_strings(given):
    assert refusal({"model": "m", "input": given}, path="/v1/classify").param == "input"


@pytest.mark.parametrize(
    "path",
    [
        "/tokenize", "/v1/decisions", "/v1/systemone", "/v1/score", "/classify", "/v1/messages/count_tokens",
        "/v1/images/generations", "/v1/video/generations",
    ],
)  # fmt: skip
def test_engine_specific_paths_need_no_more_than_a_model(path):
    request = parsed({"model": "org/m", "anything": [1]}, path=path)
    assert (request.model, request.api) == ("org/m", path)


@pytest.mark.parametrize("stream", [1, "true", [], {}])
def test_a_stream_that_is_no_bool_is_refused_because_engines_may_read_it_otherwise(stream):
    assert refusal(chat(stream=stream)).param == "stream"


@pytest.mark.parametrize(
    ("options", "is_asked"),
    [({"include_usage": True}, True), ({"include_usage": 1}, False), ({}, False), (None, False), ([], False)],
)
def test_usage_is_asked_for_by_true_alone(options, is_asked):
    request = parsed(chat(stream=True, stream_options=options))
    assert (request.stream, request.include_usage) == (True, is_asked)


@pytest.mark.acceptance("GW-32")
@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ({"max_tokens": 10, "max_completion_tokens": 500}, 10),
        ({"max_completion_tokens": 500}, 500),
        ({"max_tokens": None, "max_completion_tokens": 5}, 5),
        ({"max_tokens": -1}, None),
        ({"max_tokens": "10"}, None),
        ({"max_tokens": True}, None),
        ({"max_tokens": 1e3}, None),
        ({"max_tokens": 10**40}, None),
        ({}, None),
    ],
)
def test_the_answer_is_as_long_as_max_tokens_says_else_max_completion_tokens(members, expected):
    assert parsed(chat(**members)).max_tokens == expected


def test_a_response_is_as_long_as_max_output_tokens_says():
    assert parsed({"model": "m", "input": "x", "max_output_tokens": 9}, path="/v1/responses").max_tokens == 9


@pytest.mark.parametrize(
    "raw",
    [
        b'{"model":"a","messages":[{"content":"x"}],"model":"b"}',
        b'{"mod\\u0065l":"a","messages":[{"content":"x"}],"model":"b"}',
        b'{"model":"a","messages":[{"content":"x"}],"mod\\u0065l":"b"}',
        b'{"messages":[{"content":"x", "model":"c"}],"model":"\\u0062"}',
    ],
)
def test_the_model_is_the_one_that_a_full_parse_gives(raw):
    assert parsed(raw).model == orjson.loads(raw)["model"] == "b"


@pytest.mark.parametrize("name", ["org/model", "with blank", "模型", "x" * 300, '"quoted"', "a\nb", "🙂"])
def test_a_model_may_have_any_name(name):
    assert parsed(chat(name)).model == name


@pytest.mark.parametrize(
    ("path", "body", "text"),
    [
        ("/v1/chat/completions", {"messages": [{"content": "a"}, {"content": "b"}]}, "a b"),
        ("/v1/chat/completions", {"messages": [{"content": [{"type": "text"}]}]}, '[{"type":"text"}]'),
        ("/v1/chat/completions", {"messages": [{"content": "a"}, {"content": None}, {"role": "x"}]}, "a"),
        ("/v1/messages", {"system": "s", "messages": [{"content": "b"}]}, "s b"),
        ("/v1/completions", {"prompt": "p"}, "p"),
        ("/v1/responses", {"input": "i", "instructions": "s"}, "s i"),
        ("/v1/responses", {"input": [{"content": "a"}, {"content": [{"text": "b"}, {"text": "c"}]}]}, "a b c"),
        ("/v1/embeddings", {"input": ["a", "b"]}, "a b"),
        ("/v1/embeddings", {"input": [1, 2]}, "[1,2]"),
        ("/v1/embeddings", {"input": [{"text": "a", "image": "zz"}]}, "a"),
        ("/v1/rerank", {"query": "q", "documents": ["d", {"text": "e"}]}, "q d e"),
        ("/v1/classify", {"input": ["a", "b"]}, "a b"),
        ("/v1/images/generations", {"prompt": "é"}, "é"),
        ("/tokenize", {"prompt": "p"}, ""),
    ],
)
def test_the_routing_text_and_its_length(path, body, text):
    request = parsed({"model": "m", **body}, path=path)
    assert request.prompt_bytes == len(text.encode())
    assert request.text_of() == text


def test_the_prompt_is_let_go_of_and_its_length_stays():
    request = parsed(chat())
    request.forget_text()
    assert (request.text_of(), request.prompt_bytes, request.prompt_tokens) == ("", 5, 2)


def test_a_body_that_is_nested_deeper_than_can_be_written_again_is_refused():
    deep = b"[" * 300 + b"]" * 300
    assert refusal(b'{"model":"m","messages":[{"content":' + deep + b"}]}").status == 400
