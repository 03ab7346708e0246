"""A web service that answers a request when its event is on disk, with FastAPI.

Requests that arrive at the same time share one sync, and no request needs a thread. A task of the
service counts the events of each user as a consumer group, so that it goes on where it stopped.

Serve it with ``EVENTS=events uvicorn --app-dir examples --factory fastapi_events:create_app``.
Run as a script it serves itself, sends some requests and stops.
"""

import asyncio
import contextlib
import os
import tempfile
from collections import Counter
from collections.abc import AsyncIterator

import httpx
import uvicorn
from fastapi import FastAPI, HTTPException, Request

import forebay
import forebay.aio


def create_app() -> FastAPI:
    counts: Counter[str] = Counter()

    async def count(consumer: forebay.aio.Consumer) -> None:
        async for event in consumer:
            counts[event.key or ""] += 1

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with (
            forebay.aio.open(os.environ["EVENTS"], flush="sync") as store,
            store.consumer("events", group="counts") as consumer,
        ):
            app.state.store = store
            app.state.events = store.producer("events")
            counting = asyncio.create_task(count(consumer))
            yield
            counting.cancel()
            await asyncio.wait((counting,))

    app = FastAPI(lifespan=lifespan)

    @app.post("/events/{user}", status_code=201)
    async def capture(user: str, request: Request) -> dict[str, int]:
        try:
            sent = await app.state.events.send(await request.body(), key=user)
        except forebay.BusyError:
            # Nothing was appended, so the client may try again.
            raise HTTPException(503) from None
        return {"queue": sent.queue, "offset": sent.offset}

    @app.get("/events/{user}")
    async def latest(user: str) -> list[str]:
        events = await app.state.store.query("events", user, max_messages=10)
        return [event.body.decode() for event in events]

    @app.get("/counts")
    async def count_of_all() -> dict[str, int]:
        return counts

    return app


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["EVENTS"] = os.path.join(folder, "events")
        config = uvicorn.Config(create_app(), port=0, log_level="warning")
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
            posts = (client.post("/events/ann", content=f"click {n}") for n in range(50))
            answers = await asyncio.gather(*posts)
            assert all(answer.status_code == 201 for answer in answers)
            found = (await client.get("/events/ann")).json()
            print(f"{len(answers)} events are durable; the newest: {found[0]}")
            while (counts := (await client.get("/counts")).json()).get("ann") != 50:
                await asyncio.sleep(0.01)
            print(f"counted by the group: {counts}")
        server.should_exit = True
        await serving


if __name__ == "__main__":
    asyncio.run(main())
